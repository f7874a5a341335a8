package connect_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// TestSwitchOn: whatever switched Sallyport off in a client's file, connecting the
// client switches it on again.
func TestSwitchOn(t *testing.T) {
	for _, c := range definitions.Clients() {
		m, _ := place(t)
		tt := target(t, m, c.Name, false)
		if tt.Removes() {
			continue
		}
		off, err := tt.SwitchOff(install(t, m, tt).After, "sallyport")
		if err != nil {
			t.Fatal(err)
		}
		put(t, tt.File, string(off), 0o600)
		kept, err := m.Look(tt)
		if err != nil || len(kept.Servers) != 1 || !kept.Servers[0].Disabled {
			t.Fatalf("%s: got %v (%v), want one that is off in\n%s", c.Name, kept.Servers, err, off)
		}
		change := install(t, m, tt)
		if diff := change.Diff(func(s string) string { return s }); change.Same() || !strings.Contains(diff, "\n+") && !strings.Contains(diff, "\n-") {
			t.Errorf("%s: nothing changes", c.Name)
		}
		put(t, tt.File, string(change.After), 0o600)
		if kept, err = m.Look(tt); err != nil || len(kept.Servers) != 1 || kept.Servers[0].Disabled {
			t.Errorf("%s: got %v (%v), want one that is on in\n%s", c.Name, kept.Servers, err, change.After)
		}
	}
	// Gemini CLI has four lists.
	for _, text := range []string{
		`{"excludeMCPServers": ["sallyport", "b"], "mcpServers": {"sallyport": {"command": "/usr/bin/sallyport", "args": ["serve"]}}}`,
		`{"allowMCPServers": ["b"], "mcp": {"allowed": ["b"], "excluded": ["sallyport"]}}`,
	} {
		m, _ := place(t)
		tt := target(t, m, "gemini", false)
		put(t, tt.File, text, 0o600)
		got := install(t, m, tt).After
		put(t, tt.File, string(got), 0o600)
		if kept, err := m.Look(tt); err != nil || len(kept.Servers) != 1 || kept.Servers[0].Disabled || !strings.Contains(string(got), `"b"`) {
			t.Errorf("got %v (%v) in\n%s", kept.Servers, err, got)
		}
	}
}

// TestOpenCode: each version's form of the file is written where it is read.
func TestOpenCode(t *testing.T) {
	const self = `{"type": "local", "command": ["/usr/bin/sallyport", "serve"], `
	for _, tt := range []struct{ name, text, place, entry, off string }{
		{"no file", "", "mcp", self + `"enabled": true}`, ""},
		{"no servers", `{"model": "m"}`, "mcp", self + `"enabled": true}`, ""},
		{"version 1", `{"mcp": {"x": {"type": "local", "command": ["c"], "enabled": true}}}`, "mcp", self + `"enabled": true}`, `"x": {"type": "local", "command": ["c"], "enabled": false}`},
		{"version 2", `{"mcp": {"servers": {"x": {"type": "local", "command": ["c"]}}}}`, "mcp.servers", self + `"codemode": false}`, `"x": {"type": "local", "command": ["c"], "disabled": true}`},
		{"version 2, without servers", `{"mcp": {"servers": {}, "timeout": {"startup": 5}}}`, "mcp.servers", self + `"codemode": false}`, ""},
		{"version 2, and one of version 1", `{"mcp": {"x": {"type": "local", "command": ["c"]}, "servers": {"y": {"type": "local", "command": ["d"]}}}}`, "mcp.servers", self + `"codemode": false}`, `"x": {"type": "local", "command": ["c"], "enabled": false}`},
		{"a server named servers", `{"mcp": {"servers": {"type": "local", "command": ["c"]}}}`, "mcp", self + `"enabled": true}`, ""},
		{"connected in the form of version 1", `{"mcp": {"sallyport": {"type": "local", "command": ["/usr/bin/sallyport", "serve"], "enabled": false}, "servers": {"y": {"type": "local", "command": ["d"]}}}}`, "mcp", self + `"enabled": true}`, ""},
		{"servers as other clients have them", `{"mcpServers": {"x": {"command": "c"}}}`, "mcp", self + `"enabled": true}`, `"x": {"command": "c", "enabled": false}`},
	} {
		m, journal := place(t)
		file := target(t, m, "opencode", false)
		if tt.text != "" {
			put(t, file.File, tt.text, 0o600)
		}
		after := install(t, m, file).After
		got, err := edit.Get(edit.JSONC, after, edit.At(append(strings.Split(tt.place, "."), "sallyport")...))
		want, _ := edit.Get(edit.JSONC, []byte(`{"x": `+tt.entry+`}`), edit.At("x"))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v (%v) at %s, want %v, in\n%s", tt.name, got, err, tt.place, want, after)
		}
		put(t, file.File, string(after), 0o600)
		if kept, err := m.Look(file); err != nil || len(kept.Own) != 1 || !install(t, m, file).Same() {
			t.Errorf("%s: got %v (%v), want itself, and nothing to do, in\n%s", tt.name, kept.Own, err, after)
		}
		if tt.off == "" {
			continue
		}
		record, _ := move(t, m, journal, "opencode")
		if got := read(t, file.File); !strings.Contains(got, tt.off) {
			t.Errorf("%s: moved: got\n%s\nwant %s", tt.name, got, tt.off)
		}
		if err := journal.Undo(record[0]); err != nil || read(t, file.File) != string(after) {
			t.Errorf("%s: undone: got %v\n%s", tt.name, err, read(t, file.File))
		}
	}
}
