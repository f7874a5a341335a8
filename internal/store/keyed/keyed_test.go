package keyed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sallyport/sallyport/internal/store"
)

// note is the value of these tests; its file is "KEY: TEXT".
type note struct{ Key, Text string }

var notes = Format[note]{
	Lock: "notes", Plural: "notes", KeysSetting: "notes.max",
	Key: func(n note) string { return n.Key },
	Decode: func(data []byte) (note, error) {
		key, text, ok := strings.Cut(string(data), ": ")
		if !ok {
			return note{"ignored", ""}, fmt.Errorf("%w: it has no colon", ErrBroken)
		}
		return note{key, text}, nil
	},
	Encode: func(n note) ([]byte, error) { return []byte(n.Key + ": " + n.Text), nil },
	Listed: func(n note) (note, int64) { return note{Key: n.Key}, 100 },
}

func open(t *testing.T, limits Limits) (*Store[note], string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "notes")
	return Open(store.At(dir), notes, limits), dir
}

var roomy = Limits{Keys: 100, Total: 1 << 20}

func put(s *Store[note], key, text string) (string, error) {
	return s.Update(key, func(note, string, error) (note, error) { return note{key, text}, nil })
}

// swap is the compare-and-swap that Update describes.
func swap(s *Store[note], key, text, expected string) (string, error) {
	return s.Update(key, func(_ note, version string, err error) (note, error) {
		if err != nil && !errors.Is(err, ErrMissing) {
			return note{}, err
		}
		if version != expected {
			return note{}, ErrConflict
		}
		return note{key, text}, nil
	})
}

func TestUpdate(t *testing.T) {
	s, dir := open(t, roomy)
	for _, key := range []string{"k", "K", "../x", "grün", strings.Repeat("ä", 90), strings.Repeat("ä", 91)} {
		if _, _, err := s.Get(key); !errors.Is(err, ErrMissing) {
			t.Errorf("%q: got %v, want ErrMissing", key, err)
		}
		one, err := swap(s, key, "one", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := swap(s, key, "two", "other"); !errors.Is(err, ErrConflict) {
			t.Errorf("%q: got %v, want ErrConflict", key, err)
		}
		two, err := swap(s, key, "two", one)
		if err != nil || two == one {
			t.Errorf("%q: got the version %q after %q, and %v", key, two, one, err)
		}
		got, version, err := s.Get(key)
		if err != nil || got != (note{key, "two"}) || version != two {
			t.Errorf("got %v, %q, %v, want the text two and %q", got, version, err, two)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "k.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("got %v, %v, want a private file", info.Mode(), err)
	}
	// The same value is not written again.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "k.json"), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := put(s, "k", "two"); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(filepath.Join(dir, "k.json")); err != nil || info.ModTime().After(old.Add(time.Minute)) {
		t.Errorf("the same value was written again at %v, %v", info.ModTime(), err)
	}
	// A broken file can be replaced, and its version is not that of a missing one.
	if err := os.WriteFile(filepath.Join(dir, "k.json"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := swap(s, "k", "three", ""); !errors.Is(err, ErrBroken) {
		t.Errorf("of a broken file: got %v, want ErrBroken", err)
	}
	if got, _, err := s.Get("k"); !errors.Is(err, ErrBroken) || got != (note{}) {
		t.Errorf("got %v, %v, want ErrBroken and no value", got, err)
	}
	if _, err := put(s, "k", "three"); err != nil {
		t.Error(err)
	}
	if _, err := put(Open(store.At(""), notes, roomy), "k", ""); !errors.Is(err, store.ErrNoPlace) {
		t.Errorf("without a directory: got %v, want ErrNoPlace", err)
	}
}

// TestTogether: of updates that happen at the same time, none is lost.
func TestTogether(t *testing.T) {
	s, dir := open(t, roomy)
	var all sync.WaitGroup
	for _, s := range []*Store[note]{s, s, Open(store.At(dir), notes, roomy), Open(store.At(dir), notes, roomy)} {
		all.Go(func() {
			for range 25 {
				if _, err := s.Update("k", func(n note, _ string, _ error) (note, error) { return note{"k", n.Text + "x"}, nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got, _, err := s.Get("k"); err != nil || len(got.Text) != 100 {
		t.Errorf("got %d updates, %v, want 100", len(got.Text), err)
	}
}

func TestLimits(t *testing.T) {
	s, dir := open(t, Limits{Keys: 2, Total: 100})
	for _, tt := range []struct {
		name, key string
		size      int
		want      string
	}{
		{"a first", "a", 50, ""},
		{"too large together", "b", 60, "too much to keep: all notes together would take 116 bytes, at most 100 bytes can be kept"},
		{"a second", "b", 30, ""},
		{"a third", "c", 1, "too much to keep: there are 2 notes already (setting notes.max)"},
		{"one that grows too much", "a", 90, "too much to keep: all notes together would take 126 bytes, at most 100 bytes can be kept"},
		{"one that shrinks", "a", 10, ""},
		{"more than can be read", "a", MaxFile, "too much to keep: the file would take 65 MiB, at most 64 MiB can be read"},
	} {
		got := ""
		if _, err := put(s, tt.key, strings.Repeat("x", tt.size)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	// A limit that was lowered does not stop what does not grow.
	lower := Open(store.At(dir), notes, Limits{Keys: 1, Total: 10})
	if _, err := put(lower, "a", "x"); err != nil {
		t.Error(err)
	}
	if _, err := put(lower, "a", "xxx"); !errors.Is(err, ErrLimit) {
		t.Errorf("got %v, want ErrLimit", err)
	}
}

func TestDelete(t *testing.T) {
	s, dir := open(t, roomy)
	if err := s.Delete("k"); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v, want ErrMissing", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("deleting nothing has made a directory: %v", err)
	}
	if _, err := put(s, "k", ""); err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, ErrMissing} {
		if err := s.Delete("k"); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestList(t *testing.T) {
	s, dir := open(t, roomy)
	long := strings.Repeat("ä", 90)
	for _, key := range []string{"b", "A", long} {
		if _, err := put(s, key, "text"); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"broken.json": "", "moved.json": "b: of another", "other": "b: x", "%zz.json": "x", "B.json": "B: capital",
		store.FileName(strings.Repeat("ö", 90), ".json"): "broken",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	cut := store.TextOf(store.FileName(strings.Repeat("ö", 90), ".json"), ".json")
	want := []Item[note]{
		{Key: "%zz", Err: ErrBroken}, {Key: "A", Value: note{Key: "A"}}, {Key: "B", Err: ErrBroken}, {Key: "b", Value: note{Key: "b"}},
		{Key: "broken", Err: ErrBroken}, {Key: "moved", Err: ErrBroken}, {Key: long, Value: note{Key: long}}, {Key: cut, Err: ErrBroken},
	}
	for range 2 { // the second is from the cache
		got, err := s.List()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
			t.Errorf("List (-want +got):\n%s", diff)
		}
	}
	keys, err := s.Keys()
	if diff := cmp.Diff([]string{"A", "b", "broken", "moved", long}, keys); diff != "" || err != nil {
		t.Errorf("Keys (-want +got), %v:\n%s", err, diff)
	}
	none, _ := open(t, roomy)
	if items, err := none.List(); err != nil || items == nil || len(items) != 0 {
		t.Errorf("of nothing: got %v, %v", items, err)
	}
	if keys, err := none.Keys(); err != nil || keys == nil || len(keys) != 0 {
		t.Errorf("of nothing: got %v, %v", keys, err)
	}
}

func TestCheck(t *testing.T) {
	for name, want := range map[string]string{
		"k.json":  "",
		"+k.json": "the file is broken: its key does not belong to its name",
		"b.json":  "the file is broken: it has no colon",
	} {
		content := "k: text"
		if name == "b.json" {
			content = "k"
		}
		got := ""
		if err := notes.Check(name, []byte(content)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
