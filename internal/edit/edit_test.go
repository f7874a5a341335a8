package edit_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/edit"
)

var entry = edit.Object{{"command", "/usr/bin/sallyport"}, {"args", []string{"serve"}}, {"alwaysLoad", true}}

// TestSetAndRemove compares contents: nothing but the change may differ.
func TestSetAndRemove(t *testing.T) {
	server := edit.At("mcpServers", "sallyport")
	const three = `"sallyport": {
      "command": "/usr/bin/sallyport",
      "args": ["serve"],
      "alwaysLoad": true
    }`
	for _, tt := range []struct {
		name   string
		format edit.Format
		at     edit.Place
		before string
		value  any
		after  string
	}{
		{"nothing yet", edit.JSON, server, "", entry, "{\n  \"mcpServers\": {\n    " + three + "\n  }\n}\n"},
		{"an empty object", edit.JSON, server, "{}\n", entry, "{\n  \"mcpServers\": {\n    " + three + "\n  }\n}\n"},
		{"an empty object of servers", edit.JSON, server, "{\n  \"a\": 1,\n  \"mcpServers\": {}\n}", entry, "{\n  \"a\": 1,\n  \"mcpServers\": {\n    " + three + "\n  }\n}"},
		{"other servers", edit.JSON, server, "{\n  \"mcpServers\": {\n    \"a\": {}\n  },\n  \"z\": 1e2\n}\n", entry, "{\n  \"mcpServers\": {\n    \"a\": {},\n    " + three + "\n  },\n  \"z\": 1e2\n}\n"},
		{
			"comments", edit.JSONC, server,
			"// mine\n{\n  \"mcpServers\": {\n    \"a\": {} // last\n    // end\n  }\n}\n", entry,
			"// mine\n{\n  \"mcpServers\": {\n    \"a\": {}, // last\n    // end\n    " + three + "\n  }\n}\n",
		},
		{
			"a trailing comma", edit.JSONC, server,
			"{\n  \"mcpServers\": {\n    \"a\": {},\n  },\n}\n", entry,
			"{\n  \"mcpServers\": {\n    \"a\": {},\n    " + three + ",\n  },\n}\n",
		},
		{"only a comment", edit.JSONC, server, "{\n  // none yet\n}\n", entry, "{\n  // none yet\n  \"mcpServers\": {\n    " + three + "\n  }\n}\n"},
		{"tabs and carriage returns", edit.JSON, edit.At("m", "s"), "\xef\xbb\xbf{\r\n\t\"m\": {}\r\n}\r\n", edit.Object{{"a", 1}}, "\xef\xbb\xbf{\r\n\t\"m\": {\r\n\t\t\"s\": {\r\n\t\t\t\"a\": 1\r\n\t\t}\r\n\t}\r\n}\r\n"},
		{"one line", edit.JSON, edit.At("m", "s"), `{"m": {"x": 1}}`, edit.Object{{"a", true}}, `{"m": {"x": 1, "s": {"a": true}}}`},
		{"a value", edit.JSONC, edit.At("m", "x"), "{\"m\": {\"x\": 1 /* why */}}\n", 2, "{\"m\": {\"x\": 2 /* why */}}\n"},
		{"null", edit.JSON, edit.At("m", "x"), "{\"m\": null}\n", "y", "{\"m\": {\"x\": \"y\"}}\n"},
		{"the same", edit.JSON, edit.At("m", "x"), `{"m":{"x":["a"]}}`, []string{"a"}, `{"m":{"x":["a"]}}`},
		{"removed, first", edit.JSONC, edit.At("m", "x"), "{\n  \"m\": {\n    \"x\": 1,\n    // y's\n    \"y\": 2\n  }\n}\n", nil, "{\n  \"m\": {\n    // y's\n    \"y\": 2\n  }\n}\n"},
		{"removed, last", edit.JSON, edit.At("m", "y"), "{\n  \"m\": {\n    \"x\": 1,\n    \"y\": 2\n  }\n}\n", nil, "{\n  \"m\": {\n    \"x\": 1\n  }\n}\n"},
		{"removed, not there", edit.JSON, edit.At("m", "z"), `{"m": {}}`, nil, `{"m": {}}`},

		{"TOML, nothing yet", edit.TOML, edit.At("mcp_servers", "sallyport"), "", entry, "[mcp_servers.sallyport]\ncommand = \"/usr/bin/sallyport\"\nargs = [\"serve\"]\nalwaysLoad = true\n"},
		{
			"TOML, at the end", edit.TOML, edit.At("mcp_servers", "sallyport"),
			"model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = \"[b]\"\ntext = '''\n[no.header]\n'''\nlist = [\n  [1],\n]\n# end", edit.Object{{"command", "c"}},
			"model = \"x\" # mine\n\n[mcp_servers.a]\ncommand = \"[b]\"\ntext = '''\n[no.header]\n'''\nlist = [\n  [1],\n]\n# end\n\n[mcp_servers.sallyport]\ncommand = \"c\"\n",
		},
		{
			"TOML, replaced with what is below it", edit.TOML, edit.At("mcp_servers", "s"),
			"[mcp_servers.s]\ncommand = \"a\"\n\n[mcp_servers.s.env]\nA = \"b\"\n\n# other\n[other]\nx = 1\n", edit.Object{{"command", "c"}},
			"[mcp_servers.s]\ncommand = \"c\"\n\n# other\n[other]\nx = 1\n",
		},
		{
			"TOML, a member", edit.TOML, edit.At("mcp_servers", "a b", "enabled"), "[mcp_servers.\"a b\"]\ncommand = \"c\"\n", false,
			"[mcp_servers.\"a b\"]\nenabled = false\ncommand = \"c\"\n",
		},
		{"TOML, a member that is there", edit.TOML, edit.At("m", "a", "enabled"), "[m.a]\nenabled = true # on\nb = 1\n", false, "[m.a]\nenabled = false # on\nb = 1\n"},
		{"TOML, removed", edit.TOML, edit.At("m", "a"), "x = 1\n\n[m.a]\nb = 1\n", nil, "x = 1\n"},
		{"TOML, removed in between", edit.TOML, edit.At("m", "a"), "[m.a]\nb = 1\n\n# c\n[m.c]\n", nil, "# c\n[m.c]\n"},

		{"YAML, nothing yet", edit.YAML, edit.At("extensions", "s"), "", edit.Object{{"cmd", "c"}, {"args", []string{"serve"}}}, "extensions:\n  s:\n    cmd: c\n    args:\n      - serve\n"},
		{
			"YAML, at the end of the block", edit.YAML, edit.At("extensions", "s"),
			"a: 1 # mine\nextensions:\n    x:\n        enabled: true\n        # inside\n        text: |\n            y:\n\n# other\nb: 2\n", edit.Object{{"cmd", "c: d"}},
			"a: 1 # mine\nextensions:\n    x:\n        enabled: true\n        # inside\n        text: |\n            y:\n    s:\n      cmd: \"c: d\"\n\n# other\nb: 2\n",
		},
		{"YAML, an empty mapping", edit.YAML, edit.At("extensions", "s"), "extensions: {} # none\nb: 2\n", edit.Object{{"e", true}}, "extensions: # none\n  s:\n    e: true\nb: 2\n"},
		{"YAML, a member", edit.YAML, edit.At("x", "a", "enabled"), "x:\n  a:\n    enabled: true # on\n  b: {}\n", false, "x:\n  a:\n    enabled: false # on\n  b: {}\n"},
		{"YAML, a list", edit.YAML, edit.Place{Path: []string{"m", "s"}, Named: true}, "m:\n- name: a\n  command: b\nz: 1\n", edit.Object{{"name", "s"}, {"command", "c"}}, "m:\n- name: a\n  command: b\n- name: s\n  command: c\nz: 1\n"},
		{"YAML, removed of a list", edit.YAML, edit.Place{Path: []string{"m", "s"}, Named: true}, "m:\n  - name: a\n    command: b\n  - command: c\n    name: s\nz: 1\n", nil, "m:\n  - name: a\n    command: b\nz: 1\n"},
		{"YAML, the last", edit.YAML, edit.At("m", "s"), "a: 1\nm:\n  s:\n    c: d\nz: 1\n", nil, "a: 1\nm: {}\nz: 1\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []byte
			var err error
			if tt.value == nil {
				got, err = edit.Remove(tt.format, []byte(tt.before), tt.at)
			} else {
				got, err = edit.Set(tt.format, []byte(tt.before), tt.at, tt.value)
			}
			if err != nil || string(got) != tt.after {
				t.Fatalf("got %v\n%s\nwant\n%s", err, got, tt.after)
			}
			if tt.value == nil {
				return
			}
			if again, err := edit.Set(tt.format, got, tt.at, tt.value); err != nil || string(again) != tt.after {
				t.Errorf("a second time: got %v\n%s\nwant\n%s", err, again, tt.after)
			}
		})
	}
}

// TestRefused: what cannot be changed in place is not changed.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		format       edit.Format
		before, want string
		at           edit.Place
	}{
		{edit.JSON, "{", "not valid JSON: unexpected EOF", edit.At("m", "s")},
		{edit.JSON, "[]", "not a JSON object", edit.At("m", "s")},
		{edit.JSON, `{"a" 1}`, "not valid JSON", edit.At("m", "s")},
		{edit.JSON, `{"a": 1,}`, "not valid JSON", edit.At("m", "s")},
		{edit.JSON, `{"a": 1 "b": 2}`, "not valid JSON", edit.At("m", "s")},
		{edit.JSON, `{"a": [1 2]}`, "not valid JSON", edit.At("m", "s")},
		{edit.JSON, `{"a": [1}}`, "not valid JSON", edit.At("m", "s")},
		{edit.JSON, `{1: 2}`, "not valid JSON", edit.At("m", "s")},
		{edit.JSON, "{} x", "not valid JSON", edit.At("m", "s")},
		{edit.JSON, "\xff\xfe{\x00", "not UTF-8", edit.At("m", "s")},
		{edit.JSON, "// c\n{}", "not valid JSON", edit.At("m", "s")},
		{edit.JSON, `{"m": 1}`, `"m" is not an object`, edit.At("m", "s")},
		{edit.JSONC, `{"m": {}, "m": {}}`, "occurs twice", edit.At("m", "s")},
		{edit.JSON, "{\"m\": \"\xff\"}", "not UTF-8", edit.At("m", "s")},
		{edit.JSON, strings.Repeat("[", 5000), "too deeply", edit.At("m", "s")},
		{edit.TOML, "m = {s = {a = 1}}\n", "without rewriting", edit.At("m", "s")},
		{edit.TOML, "m.s.a = 1\n", "without rewriting", edit.At("m", "s")},
		{edit.TOML, "x = ", "not valid TOML", edit.At("m", "s")},
		{edit.YAML, "m: {a: {b: c}}\n", "without rewriting", edit.At("m", "s")},
		{edit.YAML, "m: [\n", "not valid YAML", edit.At("m", "s")},
		{edit.YAML, "- a\n", "not a mapping", edit.At("m", "s")},
	} {
		got, err := edit.Set(tt.format, []byte(tt.before), tt.at, edit.Object{{"command", "x"}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.30q: got %q, %v; want an error with %q", tt.before, got, err, tt.want)
		}
	}
}

// FuzzEdit: whatever the text is, a change is made as asked, or not at all.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{
		"{\n  \"m\": {\n    \"a\": {\"x\": [1, 2]}, // c\n  },\n}\n", `{"m":{}}`, "", "\xef\xbb\xbf{\r\n\"m\":\r\n{}}",
		"[m.a]\nb = 1\n\n[[l]]\nc = '''\n[m.s]\n'''\n", "m.a = 1", "[m]\na = {b = 1}\n", "x = [\n[1],\n]\n[m.s]\n[m.s.t]\n",
		"m:\n  a:\n    b: 1\n  s: {}\nz: |\n  m:\n", "m:\n- name: s\n  x: 1\n- name: t\n", "m: {}\n", "---\nm:\n  ? a\n  : b\n",
	} {
		for format := range 4 {
			f.Add(uint8(format), []byte(seed), "s", "x y\n\"#: '")
		}
	}
	f.Fuzz(func(t *testing.T, format uint8, text []byte, name, value string) {
		if name == "" || len(name) > 100 || len(text) > 4<<10 || strings.ToValidUTF8(name+value, "?") != name+value {
			return
		}
		kind := edit.Format(format % 4)
		for _, at := range []edit.Place{edit.At("m", name), {Path: []string{"m", name}, Named: true}} {
			if at.Named && kind != edit.YAML {
				continue
			}
			object := edit.Object{{"name", name}, {"text", value}, {"args", []string{value}}, {"on", false}}
			changed, err := edit.Set(kind, text, at, object)
			if err != nil {
				continue
			}
			have, err := edit.Get(kind, changed, at)
			want := map[string]any{"name": name, "text": value, "args": []any{value}, "on": false}
			if err != nil || !reflect.DeepEqual(have, want) {
				t.Fatalf("format %d, %q became %q: got %v, %v; want %v", kind, text, changed, have, err, want)
			}
			removed, err := edit.Remove(kind, changed, at)
			if err != nil {
				continue
			}
			if have, err := edit.Get(kind, removed, at); have != nil || err != nil {
				t.Fatalf("removed from %q: got %v, %v", removed, have, err)
			}
		}
	})
}

func ExampleSet() {
	out, err := edit.Set(edit.JSONC, []byte("{\n  // mine\n  \"theme\": \"dark\"\n}\n"), edit.At("mcpServers", "sallyport"), edit.Object{{"command", "sallyport"}})
	fmt.Println(string(out), err)
	// Output:
	// {
	//   // mine
	//   "theme": "dark",
	//   "mcpServers": {
	//     "sallyport": {
	//       "command": "sallyport"
	//     }
	//   }
	// }
	//  <nil>
}

// TestGet reads values of every format in one form.
func TestGet(t *testing.T) {
	for format, text := range map[edit.Format]string{
		edit.JSONC: `{"m": {"s": {"n": 1, "l": ["a"], "o": {"b": true}}}} // c`,
		edit.TOML:  "[m.s]\nn = 1\nl = [\"a\"]\no = {b = true}\n",
		edit.YAML:  "m: {s: {n: 1, l: [a], o: {b: true}}}\n",
	} {
		got, err := edit.Get(format, []byte(text), edit.At("m", "s"))
		want := map[string]any{"n": json.Number("1"), "l": []any{"a"}, "o": map[string]any{"b": true}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("format %d: got %#v, %v; want %#v", format, got, err, want)
		}
	}
}

// FuzzRevert: what Revert takes back right away is all of the change.
func FuzzRevert(f *testing.F) {
	f.Add(int(edit.JSON), []byte(`{"m": {"a": {"x": [1, "y"]}}, "z": null}`), "a")
	f.Add(int(edit.JSONC), []byte("// c\n{\"m\": {}, }"), "a")
	f.Add(int(edit.TOML), []byte("x = 1\n[m.a]\nk = 'v'\n[m.a.env]\ny = 2\n"), "a")
	f.Add(int(edit.YAML), []byte("m:\n  a:\n    x: 1\n"), "b")
	f.Fuzz(func(t *testing.T, format int, before []byte, key string) {
		form := edit.Format(format & 3)
		after, err := edit.Set(form, before, edit.At("m", key), entry)
		if err != nil {
			return
		}
		got, err := edit.Revert(form, after, before, after)
		if err != nil {
			return
		}
		want, err := edit.Get(form, before, edit.Place{})
		if err != nil {
			t.Fatal(err)
		}
		have, err := edit.Get(form, got, edit.Place{})
		if err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("got %v (%v), want %v, from\n%s", have, err, want, got)
		}
	})
}
