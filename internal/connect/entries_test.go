package connect_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// from returns how a program at a path, started with variables, is started.
func from(t *testing.T, path string, variables ...string) connect.Start {
	t.Helper()
	return running(t, t.TempDir(), path, variables...).Find().Start()
}

// TestLauncherInEveryClient: each client gets a launcher's entry in its own form,
// which is recognized: a second time changes nothing, and uninstalling removes it.
func TestLauncherInEveryClient(t *testing.T) {
	npx := "npm/_npx/0123abc/node_modules/@sallyport/linux-x64/bin/sallyport"
	windows := running(t, t.TempDir(), npx)
	windows.OS = "windows"
	for _, start := range []connect.Start{from(t, npx), from(t, "uv/archive-v0/abc/bin/sallyport"), windows.Find().Start()} {
		for _, c := range definitions.Clients() {
			m, journal := place(t)
			tt := target(t, m, c.Name, false)
			add := func() connect.Change {
				kept, err := m.Look(tt)
				if err != nil {
					t.Fatal(err)
				}
				change, err := kept.Install(start)
				if err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}
				return change
			}
			record, err := journal.Apply("g", "install", []connect.Change{add()})
			if err != nil {
				t.Fatal(err)
			}
			kept, err := m.Look(tt)
			if err != nil || len(kept.Own) != 1 || len(kept.Servers) != 1 || kept.Foreign != "" {
				t.Fatalf("%s: found %v, foreign %q (%v) in\n%s", c.Name, kept.Servers, kept.Foreign, err, read(t, tt.File))
			}
			l := kept.Servers[0].Launch()
			if got := strings.Join(append([]string{l.Command}, l.Args...), " "); got != start.String() {
				t.Errorf("%s: got %s, want %s", c.Name, got, start)
			}
			if again := add(); !again.Same() {
				t.Errorf("%s: a second time: got\n%s", c.Name, again.Diff(func(s string) string { return s }))
			}
			gone, err := kept.Uninstall()
			if err != nil || strings.Contains(string(gone.After), "sallyport") {
				t.Errorf("%s: uninstalled: got %v\n%s", c.Name, err, gone.After)
			}
			if err := journal.Undo(record); err != nil || exists(tt.File) {
				t.Errorf("%s: undone: got %v, file exists: %v", c.Name, err, exists(tt.File))
			}
		}
	}
}

// TestEntriesOfOurs: whoever starts Sallyport in an entry, the arguments and the
// members that the user added stay when another way to start it is written.
func TestEntriesOfOurs(t *testing.T) {
	npx := from(t, "npm/_npx/0123abc/node_modules/@sallyport/linux-x64/bin/sallyport")
	uvx := from(t, "uv/archive-v0/abc/bin/sallyport")
	for _, tt := range []struct {
		name, entry string
		start       connect.Start
		want        string
	}{
		{"npx, then installed", `"command": "npx", "args": ["-y", "sallyport@1.2", "serve", "--engine", "podman"]`, start, `"command": "/usr/bin/sallyport", "args": ["serve", "--engine", "podman"]`},
		{"cmd, then installed", `"command": "cmd", "args": ["/c", "npx", "-y", "sallyport", "serve"]`, start, `"command": "/usr/bin/sallyport", "args": ["serve"]`},
		{"installed, then npx", `"command": "/old/sallyport", "args": ["serve", "--engine", "podman"]`, npx, `"command": "npx", "args": ["-y", "sallyport", "serve", "--engine", "podman"]`},
		{"uvx, then npx", `"command": "/usr/bin/env/uvx", "args": ["--from", "x.whl", "sallyport", "serve", "-v"]`, npx, `"command": "npx", "args": ["-y", "sallyport", "serve", "-v"]`},
		{"a version of its own", `"command": "npx", "args": ["-y", "sallyport@1.2", "serve"]`, npx, `"command": "npx", "args": ["-y", "sallyport@1.2", "serve"]`},
		{"npx without -y", `"command": "npx", "args": ["sallyport", "serve"]`, npx, `"command": "npx", "args": ["-y", "sallyport", "serve"]`},
		{"a cache", `"command": "/c/uv/archive-v0/abc/bin/sallyport", "args": ["serve"]`, uvx, `"command": "uvx", "args": ["sallyport", "serve"]`},
		{"a launcher that is gone", `"command": "/nowhere/uvx", "args": ["sallyport", "serve"]`, uvx, `"command": "uvx", "args": ["sallyport", "serve"]`},
	} {
		m, _ := place(t)
		file := target(t, m, "cursor", false)
		const more = `, "env": {"A": "hello"}, "autoApprove": ["run_python"]`
		put(t, file.File, `{"mcpServers": {"code": {"type": "stdio", `+tt.entry+more+"}}}\n", 0o600)
		kept, err := m.Look(file)
		if err != nil {
			t.Fatal(err)
		}
		change, err := kept.Install(tt.start)
		if want := `{"mcpServers": {"code": {"type": "stdio", ` + tt.want + more + "}}}\n"; err != nil || string(change.After) != want {
			t.Errorf("%s: got %v and\n%s\nwant\n%s", tt.name, err, change.After, want)
		}
	}
}

// TestArguments: an entry keeps its own arguments, if they start a server.
func TestArguments(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{`{"command": "sallyport", "args": ["serve", "--session-limit", 5]}`, `["serve", "--session-limit", "5"]`},
		{`{"command": "sallyport", "args": ["hub"]}`, `["serve"]`},
		{`{"command": "sallyport", "args": []}`, `["serve"]`},
		{`{"command": "sallyport"}`, `["serve"]`},
	} {
		m, _ := place(t)
		file := target(t, m, "cursor", false)
		put(t, file.File, `{"mcpServers": {"sallyport": `+tt.entry+"}}\n", 0o600)
		if change := install(t, m, file); !strings.Contains(string(change.After), tt.want) {
			t.Errorf("%s: got\n%s\nwant %s", tt.entry, change.After, tt.want)
		}
	}
}

// TestForeignEntry: what has our name and starts something else is not ours. It is
// said what it is, without its secrets; uninstalling leaves it, and its variables
// are not passed on.
func TestForeignEntry(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{`{"command": "/opt/other", "args": ["--token", "hunter2x"], "env": {"A": "b"}}`, "/opt/other"},
		{`{"url": "https://h/mcp", "env": {"A": "b"}}`, "https://h/mcp"},
		{`{"env": {"A": "b"}}`, "something that cannot be read"},
		{`{"command": "/gone/sallyport-linux-amd64", "args": ["serve"], "env": {"A": "b"}}`, ""},
		{`{"command": "docker", "args": ["run", "-i", "sallyport"]}`, ""},
	} {
		m, _ := place(t)
		file := target(t, m, "cursor", false)
		put(t, file.File, `{"mcpServers": {"sallyport": `+tt.entry+"}}\n", 0o600)
		kept, err := m.Look(file)
		if err != nil || kept.Foreign != tt.want || (len(kept.Own) == 0) != (tt.want != "") {
			t.Errorf("%s: got %q, own %v (%v); want %q", tt.entry, kept.Foreign, kept.Own, err, tt.want)
		}
		if tt.want == "" {
			continue
		}
		if change, err := kept.Uninstall(); err != nil || !change.Same() {
			t.Errorf("%s: uninstalling changes it (%v):\n%s", tt.entry, err, change.After)
		}
		change, err := kept.Install(start)
		if text := string(change.After); err != nil || !strings.Contains(text, start.Command) || strings.Contains(text, `"A"`) || strings.Contains(text, "h/mcp") {
			t.Errorf("%s: got %v and\n%s", tt.entry, err, text)
		}
	}
}

// TestTrust: Gemini CLI connects no servers in a folder that it does not trust.
func TestTrust(t *testing.T) {
	const on, off = `{"security": {"folderTrust": {"enabled": true}}}`, `{"security": {"folderTrust": {"enabled": false}}}`
	for _, tt := range []struct{ settings, rules, want string }{
		{"{}", "", ""},
		{on, "", "does not know"},
		{on, `{"~": "TRUST_FOLDER"}`, ""},
		{on, `{"~/a": "TRUST_FOLDER"}`, "does not know"},
		{on, `{"~/other": "TRUST_PARENT"}`, ""},
		{on, "{ // mine\n\"/\": \"TRUST_FOLDER\", \"~\": \"DO_NOT_TRUST\"}", "does not trust"},
		{on, `{"~": "TRUST_FOLDER", "/": "DO_NOT_TRUST"}`, ""},
		{"{}", `{"~": "DO_NOT_TRUST"}`, "does not trust"},
		{off, `{"~": "DO_NOT_TRUST"}`, ""},
		{on, `{`, "does not know"},
		{on, `[]`, "does not know"},
	} {
		m, _ := place(t)
		put(t, filepath.Join(m.Places.Home, ".gemini", "settings.json"), tt.settings, 0o600)
		if tt.rules != "" {
			put(t, filepath.Join(m.Places.Home, ".gemini", "trustedFolders.json"), strings.ReplaceAll(tt.rules, "~", m.Places.Dir), 0o600)
		}
		if got := m.Trust(target(t, m, "gemini", true)); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s with %s: got %q, want %q", tt.settings, tt.rules, got, tt.want)
		}
		if got := m.Trust(target(t, m, "cursor", true)); got != "" {
			t.Errorf("Cursor: got %q, want nothing", got)
		}
	}
}
