package connect_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/connect"
)

// TestNotes: what a diff does not show is said in words, once: tabs stay tabs, and
// neither line ends nor a byte order mark are in it.
func TestNotes(t *testing.T) {
	for _, tt := range []struct {
		name, before string
		change       func(t *testing.T, file string)
		want         []string // ~ is the file, ~~ its folder
	}{
		{"plain", "{\n\t\"mcpServers\": {}\n}\n", nil, nil},
		{"Windows", "\xef\xbb\xbf{\r\n\t\"mcpServers\": {}\r\n}\r\n", nil, []string{
			"~ begins with a byte order mark (BOM). It stays.", "~ has Windows line ends (CRLF). They stay."}},
		{"mixed", "{\r\n\t\"mcpServers\": {}\n}\n", nil, []string{"~ has Windows line ends (CRLF) in some lines."}},
		{"read-only", "{}\n", func(t *testing.T, file string) {
			if err := os.Chmod(file, 0o444); err != nil {
				t.Fatal(err)
			}
		}, []string{"~ is read-only (mode 0444). It is replaced, and stays read-only."}},
		{"hard link", "{}\n", func(t *testing.T, file string) {
			if err := os.Link(file, file+"2"); err != nil {
				t.Fatal(err)
			}
		}, []string{"~ has 2 names (hard links). Only this one is changed: the others keep what is there now."}},
		{"link", "{}\n", func(t *testing.T, file string) {
			real := filepath.Join(filepath.Dir(file), "dotfile")
			if err := os.Rename(file, real); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(real, file); err != nil {
				t.Fatal(err)
			}
		}, []string{"~ is a link to ~~/dotfile. That file is changed, and the link stays."}},
		{"another user's", "{}\n", func(t *testing.T, file string) {
			if err := os.Chown(file, 12345, 0); err != nil {
				t.Skip(err)
			}
		}, []string{"~ belongs to another user (number 12345), and still does afterwards."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				t.Skip("modes and links of Unix")
			}
			m, journal := place(t)
			file := target(t, m, "cursor", false)
			put(t, file.File, tt.before, 0o600)
			if tt.change != nil {
				tt.change(t, file.File)
			}
			before, err := os.Stat(file.File)
			if err != nil {
				t.Fatal(err)
			}
			change := install(t, m, file)
			var got []string
			for _, note := range change.Notes() {
				got = append(got, strings.NewReplacer(file.File, "~", filepath.Dir(file.File), "~~").Replace(note))
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if diff := change.Diff(func(s string) string { return s }); strings.ContainsAny(diff, "\r\ufeff") || !strings.Contains(diff, "sallyport") {
				t.Errorf("got the diff %q, want no carriage returns and no mark", diff)
			}
			if _, err := journal.Apply("g", "install", []connect.Change{change}); err != nil {
				t.Fatal(err)
			}
			after, err := os.Stat(file.File)
			if err != nil || after.Mode() != before.Mode() {
				t.Errorf("got mode %v (%v), want %v", after.Mode(), err, before.Mode())
			}
			if again := change.Notes(); tt.name == "another user's" && len(again) != 1 {
				t.Errorf("afterwards it is not that user's: %q", again)
			}
			text := read(t, file.File)
			if lf := strings.Count(text, "\n"); tt.name == "Windows" && (lf != strings.Count(text, "\r\n") || !strings.HasPrefix(text, "\xef\xbb\xbf")) {
				t.Errorf("line ends and mark did not stay: %q", text)
			}
		})
	}
}

// TestFailedWrite: where a file cannot be written, nothing is left, and the message
// says what to do.
func TestFailedWrite(t *testing.T) {
	m, journal := place(t)
	first, second := target(t, m, "cursor", false), target(t, m, "kiro", false)
	changes := []connect.Change{install(t, m, first), install(t, m, second)}
	// A folder that cannot be made: a file has its name.
	blocked := filepath.Join(m.Places.Home, ".kiro")
	put(t, blocked, "", 0o600)
	_, err := journal.Apply("g", "install", changes)
	if err == nil {
		t.Fatal("got no error")
	}
	if left, err := os.ReadDir(m.Places.Home); err != nil || len(left) != 1 || left[0].Name() != ".kiro" {
		t.Errorf("left: %v (%v), want .kiro alone", left, err)
	}
	if left, err := journal.Dir.List(); err != nil || len(left) != 0 {
		t.Errorf("left in the journal: %v (%v), want nothing", left, err)
	}
}

// TestUndoRemovesFolders that were made for a file, and no others.
func TestUndoRemovesFolders(t *testing.T) {
	m, journal := place(t)
	kiro, codex := target(t, m, "kiro", false), target(t, m, "cursor", true)
	record, err := journal.Apply("g", "install", []connect.Change{install(t, m, kiro), install(t, m, codex)})
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(m.Places.Home, ".kiro", "mine")
	put(t, mine, "", 0o600)
	if err := journal.Undo(record); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Dir(kiro.File)) || !exists(mine) || exists(filepath.Dir(codex.File)) || !exists(m.Places.Dir) {
		t.Errorf("%s: %v, %s: %v, %s: %v", filepath.Dir(kiro.File), exists(filepath.Dir(kiro.File)), mine, exists(mine), filepath.Dir(codex.File), exists(filepath.Dir(codex.File)))
	}
}

// TestReadOnlyFolder: the message names the folder, or where a link leads.
func TestReadOnlyFolder(t *testing.T) {
	if os.Geteuid() == 0 || runtime.GOOS == "windows" {
		t.Skip("root may write everywhere")
	}
	m, journal := place(t)
	file := target(t, m, "cursor", false)
	put(t, file.File, "{}", 0o600)
	change := install(t, m, file)
	if err := os.Chmod(filepath.Dir(file.File), 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(file.File), 0o700) }) // so that it can be removed
	_, err := journal.Apply("g", "install", []connect.Change{change})
	if want := "make the folder " + filepath.Dir(file.File) + " writable for you"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestHide: secrets are hidden wherever a client's file has them, also around its
// servers, and the rest is not.
func TestHide(t *testing.T) {
	m, _ := place(t)
	for _, tt := range []struct{ name, before, hides, shows string }{
		{"env", `"a": {"command": "c", "env": {"A": {"b": 1}, "DB": "hunter2x"}}`, "hunter2x", ""},
		{"env of numbers", `"a": {"command": "c", "env": {"PIN": "hunter2x"}}`, "hunter2x", `"PIN": "<hidden>"`},
		{"headers", `"a": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer hunter2x"}}`, "hunter2x", "https://h/mcp"},
		{"an argument", `"a": {"command": "c", "args": ["--token=hunter2x", "--dir", "/d"]}`, "hunter2x", `"--token=<hidden>", "--dir", "/d"`},
		{"two arguments", `"a": {"command": "c", "args": ["--token", "hunter2x", "/d"]}`, "hunter2x", `"--token", "<hidden>", "/d"`},
		{"two lines", "\"a\": {\"command\": \"c\", \"args\": [\n\"--api-key\",\n\"hunter2x\",\n\"/d\"]}", "hunter2x", `"/d"`},
		{"a short name", `"a": {"command": "c", "args": ["--pat", "hunter2x", "--path", "/d"]}`, "hunter2x", `"--path", "/d"`},
		{"a variable's value", `"a": {"command": "c", "args": ["-e", "DB=hunter2x", "-e", "HOME=$HOME"]}`, "hunter2x", `"DB=<hidden>", "-e", "HOME=$HOME"`},
		{"a scheme", `"a": {"command": "c", "x": "Bearer hunter2x"}`, "hunter2x", `"Bearer <hidden>"`},
		{"userinfo", `"a": {"url": "https://me:hunter2x@h/mcp"}`, "hunter2x", "me:<hidden>@h/mcp"},
		{"query", `"a": {"url": "https://h/mcp?api_key=hunter2x&page=1"}`, "hunter2x", "<hidden>&page=1"},
		// Entries that are not read as definitions.
		{"broken", `"a": {"cmd": "c", "environment": {"API_TOKEN": "hunter2x"}}`, "hunter2x", `"API_TOKEN": "<hidden>"`},
		{"a broken argument", `"a": [ "--token=hunter2x&b", "--x" ]`, "hunter2x", `"--x"`},
		{"broken arguments", "\"a\": [ \"--token\",\n\"hunter2x\",\n\"--x\" ]", "hunter2x", `"--x"`},
		{"a broken URL", `"a": "postgres://me:hunter2x@h/db"`, "hunter2x", "me:<hidden>@h/db"},
		{"a variable", `"a": {"command": "c", "args": ["--token", "${TOKEN}"]}`, "<hidden>", `"${TOKEN}"`},
	} {
		file := target(t, m, "cursor", false)
		put(t, file.File, "{\n\"mcpServers\": {\n"+tt.before+"\n}\n}\n", 0o600)
		kept, err := m.Look(file)
		if err != nil {
			t.Fatal(err)
		}
		change, err := kept.Install(start)
		if err != nil {
			t.Fatal(err)
		}
		got := change.Diff(kept.Hide())
		if strings.Contains(got, tt.hides) || !strings.Contains(got, tt.shows) {
			t.Errorf("%s: got\n%s\nwant %s, without %s", tt.name, got, tt.shows, tt.hides)
		}
	}
}
