package definitions

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf16"
)

func environment(vars map[string]string) Environment {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// show puts problems into lines of "LINE server: [warning:] reason".
func show(problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		p.File = filepath.Base(p.File)
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

func load(t *testing.T, text string) ([]Definition, []Problem) {
	t.Helper()
	file := write(t, filepath.Join(t.TempDir(), "f.json"), text)
	return Load([]Source{{File: file}}, Options{
		Env:  environment(map[string]string{"TOKEN": "s3cr3t-value", "EMPTY": "", "USER": "ann"}),
		Home: "/home/ann",
	})
}

func TestLoadEntry(t *testing.T) {
	dir := t.TempDir()
	defs, problems := load(t, `{
		"description": "for all",
		"mcpServers": {
			"b": {
				"type": "stdio", "command": "~/bin/tool", "timeout": 60, "alwaysAllow": ["x"],
				"args": ["-y", "~/notes", "~other", "a~/b", "${TOKEN}", "x${USER}y${EMPTY}z", "${EMPTY:-d e}", "${NONE:-}", 3000, true, "$USER", "${", "${}", "${a b}", "${NONE:-}${TOKEN}"],
				"env": {"A": "${TOKEN}", "PORT": 8080, "T": "~/not-expanded"},
				"cwd": "`+filepath.ToSlash(dir)+`"
			},
			"a": {"command": "x", "description": "own", "disabled": true, "env": null, "args": null, "cwd": null},
			"c": {"command": "x", "enabled": false, "includeTools": ["p", "q", "r"], "enabledTools": ["q", "r"], "excludeTools": ["r"]},
			"d": {"command": "x", "enabled": true, "disabled": false, "tools": ["*"]}
		}
	}`)
	if len(problems) != 0 {
		t.Fatal(show(problems))
	}
	if len(defs) != 4 || defs[0].Name != "a" || defs[3].Name != "d" {
		t.Fatalf("%v", defs)
	}
	b := defs[1]
	l := b.Launch()
	if l.Command != "/home/ann/bin/tool" || l.Dir != dir {
		t.Errorf("command %q in %q", l.Command, l.Dir)
	}
	wantArgs := []string{"-y", "/home/ann/notes", "~other", "a~/b", "s3cr3t-value", "xannyz", "d e", "", "3000", "true", "$USER", "${", "${}", "${a b}", "s3cr3t-value"}
	if !reflect.DeepEqual(l.Args, wantArgs) {
		t.Errorf("args %q", l.Args)
	}
	if !reflect.DeepEqual(l.Env, map[string]string{"A": "s3cr3t-value", "PORT": "8080", "T": "~/not-expanded"}) {
		t.Errorf("env %q", l.Env)
	}
	if b.Description != "for all" || b.Line != 4 || b.Disabled || !reflect.DeepEqual(b.EnvNames, []string{"A", "PORT", "T"}) {
		t.Errorf("%+v", b)
	}
	if b.Args[1] != "~/notes" || b.Args[4] != "${TOKEN}" {
		t.Errorf("shown as %q", b.Args)
	}
	if a := defs[0]; a.Description != "own" || !a.Disabled || a.Launch().Dir != "" {
		t.Errorf("%+v", a)
	}
	c := defs[2]
	for tool, want := range map[string]bool{"p": false, "q": true, "r": false, "s": false} {
		if !c.Disabled || c.ToolAllowed(tool) != want {
			t.Errorf("tool %s: %v", tool, !want)
		}
	}
	if d := defs[3]; d.Disabled || !d.ToolAllowed("anything") {
		t.Errorf("%+v", d)
	}
}

// utf16Text returns a string in UTF-16 with a byte order mark.
func utf16Text(order binary.AppendByteOrder, text string) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		out = order.AppendUint16(out, unit)
	}
	return string(out)
}

func TestProblems(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	tests := []struct {
		name, text string
		names      string // the servers that are left
		problems   string
	}{
		{"empty file", ``, "", "f.json:1: the file is empty\n"},
		{"truncated", "{\n\"mcpServers\": {\n", "", "f.json:3: the file ends in the middle of a value\n"},
		{"trailing commas", "{\"mcpServers\": {\n \"a\": {\"command\": \"x\",},\n},}", "a", ""},
		{"comments", "// hello\n{ /* a */\n \"mcpServers\": {\"a\": {\"command\": \"x\"} // b\n}}\n// end", "a", ""},
		{"comments, and a mistake", "// hello\n{\"mcpServers\": {\n\"a\" {}}}", "", "f.json:3: "},
		{"a byte order mark", "\xef\xbb\xbf{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}", "a", ""},
		{"UTF-16, little-endian", utf16Text(binary.LittleEndian, "{\"mcpServers\": {\"größe😀\": {\"command\": \"x\"}}}"), "größe😀", ""},
		{"UTF-16, big-endian", utf16Text(binary.BigEndian, "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}\r\n"), "a", ""},
		{"UTF-16, and a mistake", utf16Text(binary.LittleEndian, "{\n\"mcpServers\" 1}"), "", "f.json:2: invalid character '1' after object key"},
		{"UTF-16 without a mark", utf16Text(binary.LittleEndian, "{}")[2:], "", "f.json:1: the file has NUL bytes, as UTF-16 has: save it as UTF-8\n"},
		{"half a character", "\xff\xfe{\x00}\x00\x00", "", "f.json: has no member mcpServers\n"},
		{"a web page", "\n<!DOCTYPE html>\n<html>{}</html>", "", "f.json:1: a page in HTML or XML, not JSON\n"},
		{"a merge conflict", "{\"mcpServers\": {\n<<<<<<< HEAD\n}}\n=======\n>>>>>>> x", "", "f.json:2: a merge conflict that is not resolved\n"},
		{"a comment of other languages", "{\n# x\n}", "", "f.json:2: a comment begins with //, not with #\n"},
		{"a path of Windows", `{"mcpServers": {"a": {"command": "C:\Users\x"}}}`, "", "f.json:1: a backslash in a string: write \\\\ instead\n"},
		{"YAML", "mcpServers:\n  a: {}", "", "f.json:1: this is not JSON: invalid character 'm' looking for beginning of value\n"},
		{"typographic quotes", "{\n“mcpServers”: {}}", "", "f.json:2: typographic quotes (“ ”): write \" instead\n"},
		{"single quotes", "{\n'mcpServers': {}}", "", "f.json:2: single quotes: write \" instead\n"},
		{"only blanks", " \n\t\n", "", "f.json:1: the file is empty\n"},
		{"bad string", "{\n\"mcpServers\": {\"a\":\n\n{\"command\": \"x\ty\"}}}", "", "f.json:4: invalid character '\\t' in string"},
		{"two documents", "{\"mcpServers\": {}}\n\n{}", "", "f.json:3: more after the end"},
		{"not UTF-8", "{\n\"mcpServers\":\n {\"a\xff\": {}}}", "", "f.json:3: not UTF-8: save the file as UTF-8\n"},
		{"too deep", "{\n\"mcpServers\": " + deep + "}", "", "f.json:2: nested too deeply\n"},
		{"a key twice", "{\"mcpServers\": {\n\"a\": {\"command\": \"x\"},\n\"a\": {\"command\": \"y\"}}}", "",
			"f.json:3: the key \"a\" occurs twice (first on line 2)\n"},
		{"a list", "[]", "", "f.json:1: must be an object with a member mcpServers, not a list\n"},
		{"VS Code's shape", `{"servers": {}}`, "", "f.json:1: warning: unknown key \"servers\" is ignored\nf.json: has no member mcpServers (its servers must be called mcpServers here)\n"},
		{"a bare entry", `{"command": "x"}`, "", "f.json:1: warning: unknown key \"command\" is ignored\nf.json: has no member mcpServers (write"},
		{"misspelt", `{"mcpservers": {}}`, "", "f.json:1: warning: unknown key \"mcpservers\" is ignored; did you mean \"mcpServers\"?\nf.json: has no member"},
		{"mcpServers is no object", "{\"mcpServers\":\n []}", "", "f.json:2: mcpServers must be an object, not a list\n"},
		{"entries one by one", `{"mcpServers": {
			"good": {"command": "x"},
			"nothing": {},
			"blank": {"command": " "},
			"number": {"command": 5},
			"string": "npx",
			"args": {"command": "x", "args": "-y"},
			"arg": {"command": "x", "args": [
				"a", null]},
			"env": {"command": "x", "env": ["A=b"]},
			"envname": {"command": "x", "env": {"A=B": "c", "": "d"}},
			"nul": {"command": "x\u0000y"},
			"bool": {"command": "x", "disabled": "yes"},
			"also good": {"command": "y"}
		}}`, "also good good", `f.json:3: server nothing: has no command and no url
f.json:4: server blank: has no command and no url
f.json:5: server number: command must be a string, not a number
f.json:6: server string: must be an object with a command or a url, not a string
f.json:7: server args: args must be a list of strings, not a string
f.json:9: server arg: args[1] must be a string, not null
f.json:10: server env: env must be an object, not a list
f.json:11: server envname: env: "A=B" cannot be the name of a variable
f.json:11: server envname: env: "" cannot be the name of a variable
f.json:12: server nul: command contains a NUL character
f.json:13: server bool: disabled must be true or false, not a string
`},
		{"remote", `{"mcpServers": {
			"a": {"url": "https://x"},
			"b": {"type": "http", "command": "x"},
			"c": {"serverUrl": "https://x", "headers": {}},
			"d": {"type": "pigeon", "command": "x"},
			"e": {"url": "https://x", "command": "x"},
			"f": {"url": "file:///etc/passwd"},
			"g": {"url": "https://x y"},
			"h": {"url": "https://x", "headers": {"Host": "y"}},
			"i": {"url": "https://x", "headers": {"X": "a\nb"}},
			"j": {"url": ""},
			"k": {"url": "https:///x"}
		}}`, "a c", `f.json:3: server b: has no url
f.json:5: server d: unknown type "pigeon": stdio, http and sse are supported
f.json:6: server e: has both a command and a url: choose one with type
f.json:7: server f: the url must begin with https:// or http://
f.json:8: server g: the url is not valid
f.json:9: server h: headers: "Host" cannot be the name of a header
f.json:10: server i: headers: the value of X has a line break
f.json:11: server j: url is empty
f.json:12: server k: the url names no host
`},
		{"warnings", `{"mcpServers": {
			"a": {"comand": "x", "command": "y", "wibble": 1},
			"b": {"command": "x",
				"args": ["${NONE}", "${ALSO_NONE}"],
				"cwd": "/nonexistent/dir"}
		}}`, "a b", `f.json:2: server a: warning: unknown key "comand" is ignored; did you mean "command"?
f.json:2: server a: warning: unknown key "wibble" is ignored
f.json:3: server b: warning: the variable ALSO_NONE is not set
f.json:3: server b: warning: the variable NONE is not set
f.json:5: server b: warning: the working directory /nonexistent/dir does not exist; the server is started without it
`},
		{"names", `{"mcpServers": {"": {"command": "x"}, "a\nb": {"command": "x"}, "` + strings.Repeat("n", 200) + `": {"command": "x"}}}`, "",
			"f.json:1: a server needs a name\n"},
		{"itself", `{"mcpServers": {
			"sallyport": {"command": "x"},
			"b": {"command": "/usr/local/bin/sallyport", "args": ["serve"]},
			"c": {"command": "uvx", "args": ["--from", "git+https://github.com/elusznik/mcp-server-code-execution-mode", "mcp-server-code-execution-mode", "run"]},
			"d": {"command": "uv", "args": ["run", "python", "/x/mcp_server_code_execution_mode.py"]},
			"e": {"command": "npx", "args": ["-y", "sallyport@latest", "serve"]},
			"f": {"command": "sh", "args": ["-c", "exec sallyport serve"]},
			"g": {"command": "mcp-server-filesystem", "args": ["/home/ann/sallyport"]},
			"h": {"command": "sqlite-server", "args": ["--db", "sallyport"]}
		}}`, "g h", "f.json:2: server sallyport: left out, because it is named like Sallyport itself"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			defs, problems := load(t, test.text)
			var names []string
			for _, d := range defs {
				names = append(names, d.Name)
			}
			if got := strings.Join(names, " "); got != test.names {
				t.Errorf("servers %q, want %q", got, test.names)
			}
			if got := show(problems); !strings.HasPrefix(got, test.problems) {
				t.Errorf("problems:\n%swant:\n%s", got, test.problems)
			}
		})
	}
}

func TestProblemsAreFitForATerminal(t *testing.T) {
	_, problems := load(t, `{"mcpServers": {"a\u001b[2J\u202eb": {"command": "x"}, "c": {"type": "\u001b[2J", "command": "x"}, "d": {"command": "x", "env": {"\u001b=": "x"}}}}`)
	problems = append(problems, Problem{File: "/p/mcp-servers/\x1b[31m\n.json", Reason: "x"})
	for _, p := range problems {
		if strings.ContainsAny(p.String(), "\x1b\n\u202e") {
			t.Errorf("%q", p)
		}
	}
	if len(problems) != 4 {
		t.Error(show(problems))
	}
}

func TestByteOrderMark(t *testing.T) {
	defs, problems := load(t, "\xef\xbb\xbf{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}")
	if len(defs) != 1 || len(problems) != 0 {
		t.Error(defs, show(problems))
	}
}

func TestSources(t *testing.T) {
	dir := t.TempDir()
	first := write(t, filepath.Join(dir, "first.json"), `{"mcpServers": {"x": {"command": "from-first"}}}`)
	mcps := filepath.Join(dir, "MCPs")
	write(t, filepath.Join(mcps, "b.json"), `{"mcpServers": {"x": {"command": "b"}, "y": {"command": "b"}}}`)
	write(t, filepath.Join(mcps, "a.JSON"), `{"mcpServers": {"y": {"command": "a"}}}`)
	write(t, filepath.Join(mcps, "broken.json"), `{"mcpServers": `)
	write(t, filepath.Join(mcps, "z.json"), `{"mcpServers": {"z": {"command": "z"}}}`)
	write(t, filepath.Join(mcps, ".hidden.json"), `{`)
	write(t, filepath.Join(mcps, "notes.txt"), `{`)
	write(t, filepath.Join(mcps, "folder.json", "inside"), ``)
	if err := os.Truncate(write(t, filepath.Join(mcps, "huge.json"), `{"mcpServers": {}}`), MaxFileSize+1); err != nil {
		t.Fatal(err)
	}

	defs, problems := Load([]Source{{Name: "config", File: first}, {Name: "mcps", Dir: mcps}, {Dir: filepath.Join(dir, "none")}, {File: filepath.Join(dir, "none.json")}}, Options{})
	var got []string
	for _, d := range defs {
		got = append(got, d.Name+"="+d.Command)
	}
	if strings.Join(got, " ") != "x=from-first y=a z=z" {
		t.Errorf("%v", got)
	}
	want := []string{
		"b.json:1: server y: warning: already defined in " + filepath.Join(mcps, "a.JSON"),
		"broken.json:1: the file ends in the middle of a value",
		"folder.json: cannot be read: not a regular file",
		"huge.json: cannot be read: larger than 128 MB",
		"none.json: cannot be read: no such file or directory",
	}
	if x := defs[0]; len(x.Shadowed) != 1 || x.Shadowed[0] != (Origin{"mcps", filepath.Join(mcps, "b.json"), 1}) {
		t.Errorf("x hides %v", x.Shadowed)
	}
	lines := strings.Split(show(problems), "\n")
	for i, w := range want {
		if i >= len(lines) || !strings.HasPrefix(lines[i], w) {
			t.Fatalf("problems:\n%swant:\n%s", show(problems), strings.Join(want, "\n"))
		}
	}
}

func TestRelativeWorkDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "project"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := write(t, filepath.Join(dir, "f.json"), `{"mcpServers": {"a": {"command": "x", "cwd": "project"}}}`)
	defs, problems := Load([]Source{{File: file}}, Options{})
	if len(problems) != 0 || defs[0].Launch().Dir != filepath.Join(dir, "project") {
		t.Error(defs, show(problems))
	}
}

func TestSelfByFile(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "innocent")
	if err := os.Symlink(exe, link); err != nil {
		t.Skip(err)
	}
	text := `{"mcpServers": {"a": {"command": ` + quote(link) + `}, "b": {"command": "nice", "args": [` + quote(exe) + `]}, "c": {"command": "/bin/sh"}}}`
	file := write(t, filepath.Join(dir, "f.json"), text)
	defs, problems := Load([]Source{{File: file}}, Options{Self: Self{Executable: exe}})
	if len(defs) != 1 || defs[0].Name != "c" || len(problems) != 2 {
		t.Error(defs, show(problems))
	}
	defs, problems = Load([]Source{{File: file}}, Options{Self: Self{Executable: exe}, AllowSelf: true})
	if len(defs) != 3 || len(problems) != 0 {
		t.Error(defs, show(problems))
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestDepth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "x": 0, "-3": 0, "0": 0, "1": 1, "7": 7} {
		env := environment(map[string]string{DepthVariable: text})
		if got := Depth(env); got != want {
			t.Errorf("%q: %d", text, got)
		}
		if err := CheckDepth(env, false); (err != nil) != (want > 0) {
			t.Errorf("%q: %v", text, err)
		}
		if err := CheckDepth(env, true); (err != nil) != (want > 3) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	const (
		envSecret  = "env-s3cr3t"
		argSecret  = "arg-s3cr3t"
		urlSecret  = "url-s3cr3t"
		headSecret = "head-s3cr3t"
		qrySecret  = "query-s3cr3t"
		gitSecret  = "ghp_abcdefghijklmnop"
	)
	defs, problems := load(t, `{"mcpServers": {"a": {
		"command": "npx",
		"args": ["--api-key", "`+argSecret+`", "--token=${TOKEN}", "--password", "${TOKEN}", "postgres://me:`+urlSecret+`@host/db",
			"--header", "Authorization: Bearer `+headSecret+`", "https://h/x?api_key=`+qrySecret+`&page=2", "`+gitSecret+`", "also `+envSecret+`", "--verbose"],
		"env": {"KEY": "`+envSecret+`", "PEM": "-----BEGIN-----\nline-one-of-key\nline-two-of-key\n", "ON": "1"}
	}}}`)
	if len(problems) != 0 {
		t.Fatal(show(problems))
	}
	d := defs[0]
	nested := struct {
		hidden  Definition
		Visible *Definition
		launch  *Launch
		list    []Definition
	}{d, &d, d.Launch(), defs}
	asJSON, err := json.Marshal(struct {
		D Definition
		L *Launch
	}{d, d.Launch()})
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	for _, handler := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(handler).Info("x", "d", d, "p", &d, "l", d.Launch(), "nested", nested, "list", defs)
	}
	texts := map[string]string{
		"%v": fmt.Sprintf("%v %v", d, d.Launch()), "%+v": fmt.Sprintf("%+v %+v", &d, nested.Visible), "%#v": fmt.Sprintf("%#v %#v", d, d.Launch()),
		"String": d.String(), "nested": fmt.Sprintf("%+v %#v", nested.hidden, nested.list), "json": string(asJSON), "slog": logged.String(),
		"redacted": d.Redact("stderr says " + envSecret + argSecret + urlSecret + headSecret + qrySecret + gitSecret + " s3cr3t-value and\nline-two-of-key\n"),
	}
	for name, encoded := range map[string]string{
		"base64": base64.RawStdEncoding.EncodeToString([]byte(envSecret)), "hexadecimal": hex.EncodeToString([]byte(argSecret)),
		"percent": strings.ReplaceAll(envSecret, "-", "%2d"), "JSON": strings.ReplaceAll(envSecret, "-", `\u002d`),
	} {
		if got, want := d.Redact("x "+encoded+" y"), "x *** y"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for name, text := range texts {
		for _, secret := range []string{envSecret, argSecret, urlSecret, headSecret, qrySecret, gitSecret, "s3cr3t-value", "line-two-of-key"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s", name, secret)
			}
		}
	}
	want := "npx --api-key *** --token=${TOKEN} --password ${TOKEN} postgres://me:***@host/db --header 'Authorization: Bearer ***' 'https://h/x?api_key=***&page=2' *** 'also ${KEY}' --verbose"
	if got := d.CommandLine(); got != want {
		t.Errorf("shown as\n%s\nwant\n%s", got, want)
	}
	if got := d.Redact("port 1 says " + envSecret); got != "port 1 says ${KEY}" {
		t.Error(got)
	}
	// And it is all there for the start.
	if l := d.Launch(); l.Env["KEY"] != envSecret || l.Args[1] != argSecret || l.Args[2] != "--token=s3cr3t-value" {
		t.Error("what is started lacks something")
	}
	var none Definition
	if none.Redact("x") != "x" || none.Launch().Command != "" {
		t.Error("the zero value")
	}
}

// TestPathsAreMasked: a key in the path of an address is not shown, and taken
// out of what others say; names are shown.
func TestPathsAreMasked(t *testing.T) {
	shown := []string{
		"https://mcp.example.com/mcp", "http://127.0.0.1:3000/", "https://h.example/v1/api/MCP/sse.json", "https://h.example/api/v2.1/2025-06-18/my-server_2/",
		"https://github.com/modelcontextprotocol/servers", "https://h.example/mcpServer/${TENANT}/team-${TEAM}", "https://h.example",
	}
	for _, u := range shown {
		if got := NewRemote("x", "", Remote{URL: u}).URL; got != u {
			t.Errorf("got %s, want %s", got, u)
		}
	}
	for _, key := range []string{
		"hK3nQ8xZp2LmVt7w", "550e8400-e29b-41d4-a716-446655440000", "s3cr3t", "0123456789", "SECRETTOKEN", "sk-abcdefghijkl", "a%20b%2Fc=", "dGhlIGtleQ==",
		"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", "T00000000", "xoxb.1.a2b3",
	} {
		u := "https://h.example/api/" + key + "/mcp?page=1"
		d := NewRemote("x", "", Remote{URL: u})
		if want := "https://h.example/api/***/mcp?page=1"; d.URL != want {
			t.Errorf("got %s, want %s", d.URL, want)
		}
		if got, want := d.Redact("Post \""+u+"\": refused; "+key), "Post \"https://h.example/api/***/mcp?page=1\": refused; ***"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		d = New("x", "", Launch{Command: "npx", Args: []string{"mcp-remote", u, `{"url": "` + u + `"}`}})
		if got := d.CommandLine(); strings.Contains(got, key) {
			t.Errorf("got %s, with %s", got, key)
		}
		if got := d.Remote(); got != nil || d.Launch().Args[1] != u {
			t.Errorf("got %v, want the address for the start", d.Launch().Args[1] == u)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"description":"d","mcpServers":{"a":{"command":"x","args":["${A:-b}","~/"],"env":{"K":"v"},"cwd":"/","disabled":true}}}`))
	f.Add([]byte(`{"mcpServers":{"a":{"url":"x"},"b":[],"c":{"command":1}},"x":[[[]]]}`))
	f.Add([]byte("{\"a\":1,\n\"a\":2}"))
	f.Add([]byte(`{"mcpServers":{"a":{"command":"x","tools":["*"],"enabledTools":[],"comand":null}}} x`))
	f.Add([]byte("\xef\xbb\xbf[1,2,]\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := parseTree(data, nil)
		if err == nil {
			// What is accepted is JSON, and means what encoding/json reads.
			plain := strings.TrimPrefix(string(data), "\xef\xbb\xbf")
			var want any
			dec := json.NewDecoder(strings.NewReader(plain))
			dec.UseNumber()
			if !json.Valid([]byte(plain)) || dec.Decode(&want) != nil {
				t.Fatalf("%q was accepted", data)
			}
			if got := value(root); !reflect.DeepEqual(got, want) {
				t.Fatalf("%q was read as %v", data, got)
			}
		}
		lines := strings.Count(string(data), "\n") + 1
		l := newLoader(Options{Env: environment(map[string]string{"A": "value-of-a"}), Home: "/home/ann"})
		if root, err := decode(data, own); err == nil {
			l.take(Source{File: "f.json"}, own, &root)
		}
		for _, p := range l.problems {
			if p.Line < 0 || p.Line > lines || p.Reason == "" {
				t.Fatalf("%q: %+v in %d lines", data, p, lines)
			}
		}
		for _, d := range l.defs {
			if d.Name == "" || (d.Launch().Command == "") == (d.Remote() == nil) || len(d.Args) != len(d.Launch().Args) {
				t.Fatalf("%q: %+v", data, d)
			}
		}
	})
}

func value(n node) any {
	switch n.kind {
	case '{':
		out := map[string]any{}
		for _, m := range n.members {
			out[m.key] = value(m.value)
		}
		return out
	case '[':
		out := []any{}
		for _, item := range n.items {
			out = append(out, value(item))
		}
		return out
	case '"':
		return n.text
	case '0':
		return json.Number(n.text)
	case 'n':
		return nil
	}
	return n.kind == 't'
}
