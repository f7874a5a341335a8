package connect_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/connect"
	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

func place(t *testing.T) (connect.Machine, connect.Journal) {
	t.Helper()
	dir := t.TempDir()
	m := connect.Machine{Places: definitions.Places{OS: "linux", Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "project")}}
	for _, d := range []string{m.Places.Home, m.Places.Dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m, connect.Journal{Dir: store.At(filepath.Join(dir, "state"))}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func target(t *testing.T, m connect.Machine, name string, project bool) definitions.Target {
	t.Helper()
	c, ok := definitions.ClientNamed(name)
	if !ok {
		t.Fatalf("no client %s", name)
	}
	target, ok := c.Target(m.Places, project, exists)
	if !ok {
		t.Fatalf("%s has no file", name)
	}
	return target
}

var start = connect.Command{Path: "/usr/bin/sallyport"}.Start()

func install(t *testing.T, m connect.Machine, target definitions.Target) connect.Change {
	t.Helper()
	kept, err := m.Look(target)
	if err != nil {
		t.Fatal(err)
	}
	change, err := kept.Install(start)
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// TestEveryClient: each client's file is written so that Sallyport reads itself
// in it, a second time changes nothing, and undoing removes the file.
func TestEveryClient(t *testing.T) {
	for _, c := range definitions.Clients() {
		for _, project := range []bool{false, true} {
			m, journal := place(t)
			if _, ok := c.Target(m.Places, project, exists); !ok {
				if !project {
					t.Errorf("%s has no file of the user's", c.Name)
				}
				continue
			}
			tt := target(t, m, c.Name, project)
			change := install(t, m, tt)
			record, err := journal.Apply("g", "install", []connect.Change{change})
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			kept, err := m.Look(target(t, m, c.Name, project))
			if err != nil || len(kept.Own) != 1 || len(kept.Servers) != 1 {
				t.Fatalf("%s: found %v (%v) in\n%s", c.Name, kept.Servers, err, read(t, tt.File))
			}
			d := kept.Servers[0]
			if l := d.Launch(); l.Command != "/usr/bin/sallyport" || len(l.Args) != 1 || l.Args[0] != "serve" || d.Disabled || d.Name != "sallyport" {
				t.Errorf("%s: got %+v %v", c.Name, l.Command, l.Args)
			}
			if again := install(t, m, target(t, m, c.Name, project)); !again.Same() {
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

// TestUndo restores content and mode.
func TestUndo(t *testing.T) {
	m, journal := place(t)
	tt := target(t, m, "cursor", false)
	const before = "{\n\t// mine\n\t\"mcpServers\": {}\n}"
	put(t, tt.File, before, 0o640)
	record, err := journal.Apply("g", "install", []connect.Change{install(t, m, tt)})
	if err != nil {
		t.Fatal(err)
	}
	if backup := journal.Backup(record.Files[0]); read(t, backup) != before {
		t.Errorf("the backup is %q, want %q", read(t, backup), before)
	}
	if err := journal.Undo(record); err != nil || read(t, tt.File) != before {
		t.Fatalf("got %v, %q; want %q", err, read(t, tt.File), before)
	}
	info, err := os.Stat(tt.File)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("got mode %v (%v), want 0640", info.Mode(), err)
	}
	if left, err := journal.Dir.List(); err != nil || len(left) != 0 {
		t.Errorf("left: %v (%v), want nothing", left, err)
	}
}

// TestUndoOfAChangedFile: what the client or the user wrote since stays, and what
// they did to the entry itself is not touched.
func TestUndoOfAChangedFile(t *testing.T) {
	const before = `{
  "numStartups": 1,
  "mcpServers": {
    "files": {"command": "c", "args": ["-x"], "env": {"K": "v"}}
  }
}
`
	for _, tt := range []struct {
		name         string
		before       string
		change       func(installed string) string
		want         string
		conflict     bool
		takesServers bool
	}{
		{
			"the client counted on", before,
			func(s string) string { return strings.Replace(s, `"numStartups": 1`, `"numStartups": 2`, 1) },
			strings.Replace(before, `"numStartups": 1`, `"numStartups": 2`, 1), false, false,
		},
		{
			"the client formatted it anew", before,
			func(s string) string {
				return strings.Replace(s, "  \"numStartups\": 1,\n", "  \"numStartups\":   1,\n", 1)
			},
			strings.Replace(before, `"numStartups": 1`, `"numStartups":   1`, 1), false, false,
		},
		{
			"another server came", before,
			func(s string) string {
				return strings.Replace(s, `"mcpServers": {`, `"mcpServers": {"new": {"command": "n"},`, 1)
			},
			strings.Replace(before, `"mcpServers": {`, `"mcpServers": {"new": {"command": "n"},`, 1), false, false,
		},
		{
			"servers were taken over", before,
			func(s string) string { return strings.Replace(s, `"numStartups": 1`, `"numStartups": 2`, 1) },
			"{\n  \"numStartups\": 2,\n  \"mcpServers\": {\n    \"files\": {\n      \"command\": \"c\",\n      \"args\": [\"-x\"],\n      \"env\": {\n        \"K\": \"v\"\n      }\n    }\n  }\n}\n", false, true,
		},
		{
			"no file before", "",
			func(s string) string { return strings.Replace(s, `{`, `{ "mine": 1,`, 1) },
			"{ \"mine\": 1\n}\n", false, false,
		},
		{
			"the user changed the entry", before,
			func(s string) string { return strings.Replace(s, `/usr/bin/sallyport`, `/opt/sallyport`, 1) },
			"", true, false,
		},
		{"the file is broken", before, func(s string) string { return s + "{" }, "", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, journal := place(t)
			file := target(t, m, "claude-code", false)
			if tt.before != "" {
				put(t, file.File, tt.before, 0o600)
			}
			change := install(t, m, file)
			if tt.takesServers {
				var err error
				if change.After, err = file.SwitchOff(change.After, "files"); err != nil {
					t.Fatal(err)
				}
			}
			record, err := journal.Apply("g", "install", []connect.Change{change})
			if err != nil {
				t.Fatal(err)
			}
			changed := tt.change(read(t, file.File))
			if changed == string(change.After) {
				t.Fatalf("the case changes nothing in\n%s", changed)
			}
			put(t, file.File, changed, 0o600)
			err = journal.Undo(record)
			if tt.conflict {
				if !errors.Is(err, connect.ErrChanged) || read(t, file.File) != changed {
					t.Errorf("got %v and\n%s\nwant ErrChanged, and the file as it was", err, read(t, file.File))
				}
				return
			}
			if got := read(t, file.File); err != nil || got != tt.want {
				t.Errorf("got %v and\n%s\nwant\n%s", err, got, tt.want)
			}
		})
	}
}

// TestLinks: the user's link is followed and stays; a project's is refused.
func TestLinks(t *testing.T) {
	m, journal := place(t)
	tt := target(t, m, "cursor", false)
	dotfile := filepath.Join(m.Places.Home, "dotfiles", "mcp.json")
	put(t, dotfile, "{}\n", 0o600)
	if err := os.MkdirAll(filepath.Dir(tt.File), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dotfile, tt.File); err != nil {
		t.Skip("no links: ", err)
	}
	if _, err := journal.Apply("g", "install", []connect.Change{install(t, m, tt)}); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(tt.File); err != nil || to != dotfile || !strings.Contains(read(t, dotfile), "sallyport") {
		t.Errorf("the link leads to %q (%v), where there is %q", to, err, read(t, dotfile))
	}
	if err := os.Remove(dotfile); err != nil {
		t.Fatal(err)
	}
	if _, _, err := connect.Read(tt.File, ""); err == nil || !strings.Contains(err.Error(), "link to a file that does not exist") {
		t.Errorf("a link to nothing: got %v", err)
	}

	victim := filepath.Join(m.Places.Home, "victim.json")
	put(t, victim, "{}\n", 0o600)
	if err := os.Symlink(victim, filepath.Join(m.Places.Dir, ".mcp.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(m.Places.Home, filepath.Join(m.Places.Dir, ".cursor")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claude-code", "cursor"} {
		tt := target(t, m, name, true)
		change := connect.Change{Client: name, File: tt.File, Project: tt.Project, Before: []byte("{}\n"), Existed: true, After: []byte("{1}")}
		if _, err := journal.Apply("g", "install", []connect.Change{change}); err == nil {
			t.Errorf("%s: a project's link was followed", name)
		}
	}
	if got := read(t, victim); got != "{}\n" {
		t.Errorf("the link's target became %q", got)
	}
}

// TestUserChangesStay: an entry that is there keeps what the user added.
func TestUserChangesStay(t *testing.T) {
	m, _ := place(t)
	for name, text := range map[string]string{
		"claude-code": `{"mcpServers": {"code": {"command": "/old/sallyport", "args": ["serve", "--engine", "podman"], "env": {"A": "b"}}}}`,
		"opencode":    `{"mcp": {"code": {"type": "local", "command": ["/old/sallyport", "serve", "--engine", "podman"], "environment": {"A": "b"}}}}`,
	} {
		tt := target(t, m, name, false)
		put(t, tt.File, text, 0o600)
		got := string(install(t, m, tt).After)
		if !strings.Contains(got, "/usr/bin/sallyport") || !strings.Contains(got, `"--engine", "podman"`) || !strings.Contains(got, `"A": "b"`) || strings.Contains(got, "/old/") {
			t.Errorf("%s: got %s", name, got)
		}
	}
}

// TestLaunchersAreReplaced: the arguments of another program are not Sallyport's.
func TestLaunchersAreReplaced(t *testing.T) {
	m, _ := place(t)
	for name, tests := range map[string][]string{
		"claude-code": {
			`{"mcpServers": {"sallyport": {"command": "npx", "args": ["-y", "sallyport", "serve"], "env": {"A": "b"}}}}`,
			`{"mcpServers": {"mine": {"command": "uvx", "args": ["sallyport", "serve"], "env": {"A": "b"}}}}`,
		},
		"opencode": {`{"mcp": {"sallyport": {"type": "local", "command": ["npx", "-y", "sallyport", "serve"], "environment": {"A": "b"}}}}`},
		"codex":    {"[mcp_servers.sallyport]\ncommand = \"npx\"\nargs = [\"-y\", \"sallyport\", \"serve\"]\n[mcp_servers.sallyport.env]\nA = \"b\"\n"},
	} {
		tt := target(t, m, name, false)
		for _, text := range tests {
			put(t, tt.File, text, 0o600)
			put(t, tt.File, string(install(t, m, tt).After), 0o600)
			kept, err := m.Look(tt)
			if err != nil || len(kept.Servers) != 1 {
				t.Fatalf("%s: got %v (%v) in\n%s", name, kept.Servers, err, read(t, tt.File))
			}
			l := kept.Servers[0].Launch()
			if l.Command != "/usr/bin/sallyport" || len(l.Args) != 1 || l.Args[0] != "serve" || l.Env["A"] != "b" {
				t.Errorf("%s: got %s %q %v from\n%s\nto\n%s", name, l.Command, l.Args, l.Env, text, read(t, tt.File))
			}
		}
	}
}

// TestPut: a file that another program has written meanwhile stays as it is.
func TestPut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, tt := range []struct {
		name     string
		have     string
		expected []byte
		refused  bool
	}{
		{"as expected", "a", []byte("a"), false},
		{"changed", "b", []byte("a"), true},
		{"new", "b", nil, true},
		{"empty", "", []byte{}, false},
	} {
		put(t, path, tt.have, 0o600)
		want := "new"
		if tt.refused {
			want = tt.have
		}
		err := connect.Put(path, "", []byte("new"), 0o600, tt.expected, tt.expected != nil)
		if errors.Is(err, connect.ErrChanged) != tt.refused || read(t, path) != want {
			t.Errorf("%s: got %v, %q, want %q", tt.name, err, read(t, path), want)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v (%v), want one file", entries, err)
	}
}

// TestDiffHidesSecrets of the servers and of what is next to them.
func TestDiffHidesSecrets(t *testing.T) {
	m, _ := place(t)
	tt := target(t, m, "cursor", false)
	put(t, tt.File, `{
  "primaryApiKey": "k3y",
  "session": "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA",
  "mcpServers": {
    "a": {"command": "c", "args": ["--token", "hunter2x"], "env": {"X": "p4ssphrase"}}
  }
}
`, 0o600)
	kept, err := m.Look(tt)
	if err != nil {
		t.Fatal(err)
	}
	change, err := kept.Install(start)
	if err != nil {
		t.Fatal(err)
	}
	got := change.Diff(kept.Hide())
	for _, secret := range []string{"k3y", "Zm9v", "hunter2x", "p4ssphrase"} {
		if strings.Contains(got, secret) {
			t.Errorf("the diff shows %s:\n%s", secret, got)
		}
	}
	if !strings.Contains(got, `+      "command": "/usr/bin/sallyport",`) {
		t.Errorf("the diff has not what is added:\n%s", got)
	}
	// Lines that change only by a comma, or are the whole file, are not new.
	for _, text := range []string{
		"{\n  \"session\": \"Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA\"\n}\n",
		`{"session": "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA", "mcpServers": {}}`,
	} {
		put(t, tt.File, text, 0o600)
		kept, err := m.Look(tt)
		if err != nil {
			t.Fatal(err)
		}
		change, err := kept.Install(start)
		if err != nil {
			t.Fatal(err)
		}
		if got := change.Diff(kept.Hide()); strings.Contains(got, "Zm9v") || !strings.Contains(got, "/usr/bin/sallyport") {
			t.Errorf("the diff shows a secret, or not what is added:\n%s", got)
		}
	}
}

// TestSwitchOff: what is switched off in a client's own way is read as disabled,
// or is gone.
func TestSwitchOff(t *testing.T) {
	for _, c := range definitions.Clients() {
		m, _ := place(t)
		tt := target(t, m, c.Name, false)
		text := []byte(tt.Head())
		var err error
		for _, name := range []string{"one", "two"} {
			if text, err = edit.Set(tt.Format, text, tt.Place(text, name), tt.Entry(tt.Place(text, name), "c", []string{"a"})); err != nil {
				t.Fatal(err)
			}
		}
		off, err := tt.SwitchOff(text, "one")
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		put(t, tt.File, string(off), 0o600)
		kept, err := m.Look(tt)
		if err != nil {
			t.Fatal(err)
		}
		state := map[string]bool{}
		for _, d := range kept.Servers {
			state[d.Name] = !d.Disabled
		}
		if one, there := state["one"]; one || there == tt.Removes() || !state["two"] {
			t.Errorf("%s: got %v from\n%s", c.Name, state, off)
		}
	}
}

// TestLink reads back what the links say.
func TestLink(t *testing.T) {
	for client, want := range map[string]string{
		"vscode": "https://insiders.vscode.dev/redirect/mcp/install?name=sallyport&config=%7B%22command%22%3A%22sallyport%22%2C%22args%22%3A%5B%22serve%22%5D%7D",
		"cursor": "cursor://anysphere.cursor-deeplink/mcp/install?name=sallyport&config=eyJjb21tYW5kIjoic2FsbHlwb3J0IiwiYXJncyI6WyJzZXJ2ZSJdfQ%3D%3D",
		"goose":  "goose://extension?cmd=sallyport&arg=serve&id=sallyport&name=Sallyport&description=Python%20in%20a%20sandbox%2C%20with%20every%20MCP%20server%20as%20a%20module",
	} {
		if got, err := connect.Link(client, "sallyport"); err != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s", client, got, err, want)
		}
	}
	if _, err := connect.Link("zed", "sallyport"); err == nil || !strings.Contains(err.Error(), "vscode, cursor, goose") {
		t.Errorf("zed: got %v", err)
	}
}
