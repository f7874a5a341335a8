package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckVersion(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		want          error
		text          string // of another error
		after         string
	}{
		{name: "not noted", after: "{\"version\":1}\n"},
		{name: "this one", content: `{"version":1}`, after: `{"version":1}`},
		{name: "a newer one", content: `{"version":2,"x":1}`, want: ErrNewer, text: "use a newer sallyport", after: `{"version":2,"x":1}`},
		{name: "broken", content: `{`, text: "does not name a layout", after: `{`},
		{name: "zero", content: `{"version":0}`, text: "does not name a layout", after: `{"version":0}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := At(t.TempDir())
			if tt.content != "" {
				if err := os.WriteFile(dir.Path(layoutName), []byte(tt.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := dir.CheckVersion()
			if (err != nil) != (tt.text != "") || tt.want != nil && !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.text)
			}
			after, err := os.ReadFile(dir.Path(layoutName))
			if err != nil || string(after) != tt.after {
				t.Errorf("afterwards the file has %q (%v), want %q", after, err, tt.after)
			}
		})
	}
	missing := At(filepath.Join(t.TempDir(), "none"))
	if err := missing.CheckVersion(); err != nil {
		t.Errorf("of a directory that is not there: got %v, want nil", err)
	}
	if _, err := os.Lstat(missing.Path("")); err == nil {
		t.Error("CheckVersion made the directory")
	}
	if err := At("").CheckVersion(); err != nil {
		t.Errorf("without a state directory: got %v, want nil", err)
	}
}

func TestCheck(t *testing.T) {
	dir := At(t.TempDir())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	readers := map[Area]func(string, []byte) error{Memory: func(name string, _ []byte) error {
		if name == "c.json" {
			return errors.New("unused")
		}
		return nil
	}}
	must(dir.CheckVersion())
	must(dir.Area(Memory).Write("a.json", []byte(`{"key":"a"}`)))
	must(dir.Area(Ledger).Write("2026-01-01.jsonl", []byte("{")))
	image := dir.Area(Images).Path("root")
	must(os.MkdirAll(dir.Area(Images).Path(""), 0o700))
	must(os.Mkdir(image, 0o755))
	must(os.WriteFile(filepath.Join(image, "open"), []byte("abc"), 0o666))
	must(os.Symlink("/etc/passwd", filepath.Join(image, "link")))
	snapshot := dir.Area(Snapshots).Path("base")
	must(os.MkdirAll(snapshot, 0o700))
	must(os.WriteFile(filepath.Join(snapshot, "pages.img"), []byte("abc"), 0o644))
	got, err := dir.Check(readers)
	must(err)
	want := &Report{Path: dir.Path(""), Version: 1, Problems: []Problem{}, Areas: []AreaReport{
		{"images", areas[Images], 1, 3}, {"ledger", areas[Ledger], 1, 1}, {"memory", areas[Memory], 1, 11}, {"snapshots", areas[Snapshots], 1, 3},
	}}
	if got.Newest.IsZero() {
		t.Error("got no time of the newest file")
	}
	got.Newest = want.Newest
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Check (-want +got):\n%s", diff)
	}

	// And now everything that can be wrong.
	old := time.Now().Add(-2 * abandoned)
	must(dir.Area(Memory).Write("b.json", []byte(`{`)))
	must(dir.Area(Memory).Write("c.json", []byte(`{}`)))
	must(dir.Area(Owners).Sub("ann").Area(Memory).Write("c.json", []byte(`{}`)))
	must(dir.Area(Owners).Sub("ann").Sub("x").Area(Memory).Write("c.json", []byte(`{}`)))
	must(os.Chmod(dir.Area(Memory).Path("a.json"), 0o644))
	must(os.WriteFile(dir.Area(Ledger).Path(temporary+"x"), nil, 0o600))
	must(os.Chtimes(dir.Area(Ledger).Path(temporary+"x"), old, old))
	must(os.Symlink("/etc/passwd", dir.Area(Ledger).Path("link")))
	must(os.WriteFile(dir.Path("strange"), nil, 0o600))
	must(os.WriteFile(dir.Path("pins"), nil, 0o600))
	got, err = dir.Check(readers)
	must(err)
	var problems []string
	for _, p := range got.Problems {
		what, _, _ := strings.Cut(p.Problem, " ")
		problems = append(problems, p.Path+": "+what)
	}
	if diff := cmp.Diff([]string{"pins: not", "strange: not", "ledger/" + temporary + "x: left", "ledger/link: neither", "memory/a.json: others", "memory/b.json: not", "memory/c.json: unused;", "owners/ann/memory/c.json: unused;"}, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s\n%+v", diff, got.Problems)
	}

	// Repair loses nothing that cannot be made again.
	must(dir.Area(Catalog).Write("half.json", []byte(`{`)))
	got, err = dir.Check(readers)
	must(err)
	var repaired []string
	for _, p := range got.Problems {
		if p.Fix == "" {
			if dir.Repair(p) == nil {
				t.Errorf("%s was repaired, and should not be", p.Path)
			}
			continue
		}
		must(dir.Repair(p))
		repaired = append(repaired, p.Path)
	}
	if diff := cmp.Diff([]string{"catalog/half.json", "ledger/" + temporary + "x", "memory/a.json"}, repaired); diff != "" {
		t.Errorf("repaired (-want +got):\n%s", diff)
	}
	got, err = dir.Check(readers)
	must(err)
	if len(got.Problems) != len(problems)-2 {
		t.Errorf("afterwards: got %+v, want what cannot be repaired", got.Problems)
	}
	if data, err := dir.Area(Memory).Read("a.json", 100); err != nil || string(data) != `{"key":"a"}` {
		t.Errorf("got %q, %v, want the file as it was", data, err)
	}
}
