package savedtools

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/store/keyed"
)

func open(t *testing.T, limits Limits) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "user_tools")
	s := Open(store.At(dir), limits)
	s.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	return s, dir
}

func source(text string) Version { return Version{Source: text, Signature: "()"} }

func TestSaveAndGet(t *testing.T) {
	s, dir := open(t, Limits{Versions: 3})
	if _, err := s.Get("f"); !errors.Is(err, keyed.ErrMissing) {
		t.Fatal(err)
	}
	want := Version{
		Python: "3.11.2", Signature: "(x, y=2) -> int", Doc: "Adds.\n\nAnd more.", Async: true, Servers: []string{"github"},
		Schema: json.RawMessage(`{"type":"object"}`), Source: "def f(x, y=2):\n    return x + y # grün\n",
	}
	for i := range 2 { // the second is the same
		version, err := s.Save("f", want)
		if err != nil || version != 1 {
			t.Fatalf("%d: version %d, %v", i, version, err)
		}
	}
	tool, err := s.Get("f")
	if err != nil || len(tool.Versions) != 1 {
		t.Fatalf("%+v, %v", tool, err)
	}
	got := *tool.Current()
	if got.Source != want.Source || got.Doc != want.Doc || !got.Async || got.Servers[0] != "github" || got.SavedAt != "2026-01-02T03:04:05Z" {
		t.Errorf("%+v", got)
	}
	for i := range 4 {
		if version, err := s.Save("f", source(fmt.Sprintf("def f(): return %d", i))); err != nil || version != i+2 {
			t.Fatalf("version %d, %v", version, err)
		}
	}
	tool, err = s.Get("f")
	if err != nil || len(tool.Versions) != 3 || tool.Versions[0].Version != 3 || tool.Current().Version != 5 {
		t.Errorf("%+v, %v", tool, err)
	}
	if _, err := s.Save("F", source("def F(): pass")); err != nil {
		t.Fatal(err)
	}
	if names, err := s.Names(); err != nil || strings.Join(names, " ") != "F f" {
		t.Errorf("%v, %v", names, err)
	}
	for name, text := range map[string]string{
		"broken.json": "{", "moved.json": `{"name":"f","versions":[{"version":1,"saved_at":"","signature":"","source":"x"}]}`,
		"a%2fb.json": "{}", "+f.lock": "", "%zz.json": "{}", "__path__.json": "{}", "none.json": `{"name":"none","versions":[]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tools, broken, err := s.List()
	if err != nil || len(tools) != 2 || tools[0].Name != "F" || strings.Join(broken, " ") != "broken moved none" {
		t.Errorf("%+v, %v, %v", tools, broken, err)
	}
	if _, err := s.Save("broken", source("def broken(): pass")); err != nil {
		t.Errorf("a broken file cannot be replaced: %v", err)
	}
	if err := s.Remove("f"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "..", "a/b", ""} {
		if err := s.Remove(name); !errors.Is(err, keyed.ErrMissing) {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := s.Get(name); !errors.Is(err, keyed.ErrMissing) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	s, dir := open(t, Limits{Tools: 2, Total: 100 << 10})
	with := func(change func(*Version)) Version { v := source("def f(): pass"); change(&v); return v }
	tests := []struct {
		name    string
		tool    string
		version Version
		want    error
	}{
		{"plain", "f", source("def f(): pass"), nil},
		{"letters", "größe_2", source("def größe_2(): pass"), nil},
		{"too many", "g", source("def g(): pass"), keyed.ErrLimit},
		{"too large together", "f", source(strings.Repeat("#", 101<<10)), keyed.ErrLimit},
		{"no name", "", source("x"), ErrInvalid},
		{"path", "../f", source("x"), ErrInvalid},
		{"lambda", "<lambda>", source("x"), ErrInvalid},
		{"digit", "2f", source("x"), ErrInvalid},
		{"keyword", "class", source("x"), ErrInvalid},
		{"a module's own", "__path__", source("x"), ErrInvalid},
		{"long name", strings.Repeat("f", MaxName+1), source("x"), ErrInvalid},
		{"no text", "f", source("\xff"), ErrInvalid},
		{"zero", "f", source("a\x00"), ErrInvalid},
		{"blank", "f", source(" \n"), ErrInvalid},
		{"long", "f", source(strings.Repeat("#", MaxSource+1)), keyed.ErrLimit},
		{"long doc", "f", with(func(v *Version) { v.Doc = strings.Repeat("#", MaxDoc+1) }), keyed.ErrLimit},
		{"signature of two lines", "f", with(func(v *Version) { v.Signature = "(\n)" }), ErrInvalid},
		{"python that moves the cursor", "f", with(func(v *Version) { v.Python = "\x1b[2J" }), ErrInvalid},
		{"alias", "f", with(func(v *Version) { v.Servers = []string{"a b"} }), ErrInvalid},
		{"many servers", "f", with(func(v *Version) { v.Servers = make([]string, MaxServers+1) }), keyed.ErrLimit},
		{"schema", "f", with(func(v *Version) { v.Schema = json.RawMessage(`[]`) }), ErrInvalid},
		{"no schema", "f", with(func(v *Version) { v.Schema = json.RawMessage(`{`) }), ErrInvalid},
	}
	for _, tt := range tests {
		if _, err := s.Save(tt.tool, tt.version); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 { // two, and the lock
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := Open(store.At(""), Limits{}).Save("f", source("x")); !errors.Is(err, store.ErrNoPlace) {
		t.Errorf("without a directory: %v", err)
	}
}

// TestConcurrentSaves: none is lost, and no number is given twice.
func TestConcurrentSaves(t *testing.T) {
	s, dir := open(t, Limits{Versions: 100})
	other := Open(store.At(dir), Limits{Versions: 100})
	var all sync.WaitGroup
	for i, store := range []*Store{s, other, s, other} {
		all.Go(func() {
			for j := range 10 {
				if _, err := store.Save("f", source(fmt.Sprintf("def f(): return %d, %d", i, j))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	tool, err := s.Get("f")
	if err != nil || len(tool.Versions) != 40 || tool.Current().Version != 40 {
		t.Errorf("%d versions, %v", len(tool.Versions), err)
	}
}

func TestImport(t *testing.T) {
	from, _ := open(t, Limits{})
	for _, text := range []string{"def f(): return 1", "def f(): return 2"} {
		if _, err := from.Save("f", source(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := from.Save("g", source("def g(): return 1")); err != nil {
		t.Fatal(err)
	}
	tools, _, err := from.List()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Archive{Format, tools})
	if err != nil {
		t.Fatal(err)
	}
	archive, err := ReadArchive(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	to, _ := open(t, Limits{})
	if _, err := to.Save("g", source("def g(): return 0")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"[{f 2 new} {g 2 updated}]", "[{f 2 same} {g 2 same}]"} {
		done, err := to.Import(archive)
		if err != nil || fmt.Sprint(done) != want {
			t.Errorf("%v, %v; want %s", done, err, want)
		}
	}
	g, err := to.Get("g")
	if err != nil || len(g.Versions) != 2 || g.Current().Source != "def g(): return 1" {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestHostileArchives(t *testing.T) {
	version := `{"version":1,"saved_at":"","signature":"()","source":"def f(): pass"}`
	archive := func(tools string) string { return `{"format":"` + Format + `","tools":[` + tools + `]}` }
	tests := []struct{ name, text, want string }{
		{"empty", "", "not an archive"},
		{"no JSON", "PK\x03\x04", "not an archive"},
		{"another format", `{"format":"x","tools":[]}`, "format is \"x\""},
		{"unknown member", `{"format":"` + Format + `","path":"/etc"}`, "unknown field"},
		{"more after it", archive("") + "{}", "data after its end"},
		{"a path", archive(`{"name":"../../x","versions":[` + version + `]}`), "not the name of a function"},
		{"absolute", archive(`{"name":"/etc/passwd","versions":[` + version + `]}`), "not the name of a function"},
		{"no versions", archive(`{"name":"f","versions":[]}`), "no version"},
		{"twice", archive(`{"name":"f","versions":[` + version + `]},{"name":"f","versions":[` + version + `]}`), "twice"},
		{"versions out of order", archive(`{"name":"f","versions":[` + version + `,` + version + `]}`), "not in order"},
		{"version zero", archive(`{"name":"f","versions":[{"version":0,"source":"x"}]}`), "version 0"},
		{"large source", archive(`{"name":"f","versions":[{"version":1,"source":"` + strings.Repeat("x", MaxSource+1) + `"}]}`), "of at most"},
		{"terminal escapes", archive(`{"name":"f","versions":[{"version":1,"signature":"\u001b]0;x\u0007","source":"x"}]}`), "single lines"},
		{"large", archive(`{"name":"f","versions":[{"version":1,"source":"` + strings.Repeat("x", 1<<20) + `"}]}`), "larger than"},
	}
	for _, tt := range tests {
		if _, err := readArchive(strings.NewReader(tt.text), 1<<20); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %.200v, want %q", tt.name, err, tt.want)
		}
	}
}

// FuzzReadArchive: what passes can be imported, and exported as the same.
func FuzzReadArchive(f *testing.F) {
	f.Add(`{"format":"sallyport-saved-tools/1","tools":[{"name":"f","versions":[{"version":1,"saved_at":"","signature":"()","source":"x"}]}]}`)
	f.Add(`{"format":"sallyport-saved-tools/1","tools":[{"name":"größe","versions":[{"version":7,"signature":"","servers":["a"],"schema":{},"source":"x"}]}]}`)
	f.Add(`{"format":"sallyport-saved-tools/1"}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ReadArchive(strings.NewReader(text))
		if err != nil {
			return
		}
		for i := range a.Tools {
			name := a.Tools[i].Name
			if strings.ContainsAny(name, "./\\ \x00") || strings.HasPrefix(name, "__") {
				t.Fatalf("the name %q has passed", name)
			}
		}
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadArchive(strings.NewReader(string(again))); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
	})
}
