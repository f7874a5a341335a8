package snapshot

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const binding = "program: a\nmemory: 512"

func fill(content string) func(string) error {
	return func(dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "state"), []byte(content), 0o644), os.WriteFile(filepath.Join(dir, "pages"), nil, 0o644))
	}
}

func write(t *testing.T, s *Store, name, content string) {
	t.Helper()
	if err := s.Write(name, binding, map[string]int{"n": 1}, fill(content)); err != nil {
		t.Fatal(err)
	}
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "there")
	s := At(path)
	if _, err := s.Read("a", binding); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	for _, content := range []string{"one", "another"} {
		write(t, s, "a", content)
		// Another process has the same key.
		for _, reader := range []*Store{s, At(path)} {
			got, err := reader.Read("a", binding)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(got.Dir, "state"))
			if string(data) != content || err != nil || string(got.Note) != `{"n":1}` || got.Size != int64(len(content)) {
				t.Errorf("%s %v %+v", data, err, got)
			}
		}
	}
	for path, want := range map[string]os.FileMode{"": 0o700, "a": 0o700, "key": 0o600} {
		if info, err := os.Stat(filepath.Join(s.path, path)); err != nil || info.Mode().Perm() != want {
			t.Error(path, info, err)
		}
	}
	if err := s.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("a"); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Error(list, err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	manifestOf := func(s *Store, change func(*sealed, *manifest)) {
		path := filepath.Join(s.path, "a", manifestName)
		data, err := os.ReadFile(path)
		var on sealed
		var m manifest
		err = errors.Join(err, json.Unmarshal(data, &on), json.Unmarshal(on.Manifest, &m))
		change(&on, &m)
		if data, err2 := json.Marshal(on); errors.Join(err, err2, os.WriteFile(path, data, 0o600)) != nil {
			t.Fatal(err, err2)
		}
	}
	tests := map[string]struct {
		harm func(s *Store) error
		want error
		say  string
	}{
		"other content":   {func(s *Store) error { return os.WriteFile(filepath.Join(s.path, "a", "state"), []byte("eno"), 0o644) }, ErrCorrupt, "state has other content"},
		"truncated":       {func(s *Store) error { return os.Truncate(filepath.Join(s.path, "a", "state"), 1) }, ErrCorrupt, "state has other content"},
		"a file missing":  {func(s *Store) error { return os.Remove(filepath.Join(s.path, "a", "pages")) }, ErrCorrupt, "pages is missing"},
		"no manifest":     {func(s *Store) error { return os.Remove(filepath.Join(s.path, "a", manifestName)) }, ErrCorrupt, "no manifest"},
		"half a manifest": {func(s *Store) error { return os.Truncate(filepath.Join(s.path, "a", manifestName), 20) }, ErrCorrupt, ""},
		"another name":    {func(s *Store) error { return os.Rename(filepath.Join(s.path, "b"), filepath.Join(s.path, "a")) }, ErrForeign, `taken as "b"`},
		"another key":     {func(s *Store) error { s.key = []byte(strings.Repeat("k", 32)); return nil }, ErrForeign, "key"},
		"changed manifest": {func(s *Store) error {
			manifestOf(s, func(on *sealed, m *manifest) { on.Manifest = json.RawMessage(`{"version":1,"name":"a","binding":"x"}`) })
			return nil
		}, ErrForeign, "changed since"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := At(t.TempDir())
			write(t, s, "a", "one")
			if name == "another name" {
				write(t, s, "b", "one")
				if err := s.Remove("a"); err != nil {
					t.Fatal(err)
				}
			}
			if err := test.harm(s); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Read("a", binding); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.say) {
				t.Error(err)
			}
			// It can be replaced all the same.
			s = At(s.path)
			write(t, s, "a", "new")
			if _, err := s.Read("a", binding); err != nil {
				t.Error(err)
			}
		})
	}
	s := At(t.TempDir())
	write(t, s, "a", "one")
	if _, err := s.Read("a", "program: b\nmemory: 512\nuser: 1"); !errors.Is(err, ErrForeign) || !strings.HasSuffix(err.Error(), "changed since: program, user") {
		t.Error(err)
	}
	for _, name := range []string{"", "..", ".a", "a/b", "-"} {
		_, err := s.Read(name, binding)
		if err == nil || s.Write(name, binding, nil, fill("")) == nil || s.Remove(name) == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// A snapshot that could not be written leaves the one before, and nothing else.
func TestFailedWrite(t *testing.T) {
	s := At(t.TempDir())
	write(t, s, "a", "one")
	failed := errors.New("the disk is full")
	err := s.Write("a", binding, nil, func(dir string) error {
		return errors.Join(fill("two")(dir), failed)
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if got, err := s.Read("a", binding); err != nil || got.Size != 3 {
		t.Error(got, err)
	}
	if entries, err := os.ReadDir(s.path); len(entries) != 2 || err != nil { // and the key
		t.Error(entries, err)
	}
}

func TestListRemovesWhatACrashLeft(t *testing.T) {
	s := At(t.TempDir())
	write(t, s, "b", "12345")
	write(t, s, "a", "")
	old := filepath.Join(s.path, temporary+"old")
	long := time.Now().Add(-2 * abandoned)
	if err := errors.Join(os.Mkdir(old, 0o700), os.Chtimes(old, long, long), os.Mkdir(filepath.Join(s.path, temporary+"new"), 0o700)); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" || list[1].Size <= 5 {
		t.Error(list, err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.path, temporary+"new")); err != nil {
		t.Error(err)
	}
}

func TestFree(t *testing.T) {
	if free := At(filepath.Join(t.TempDir(), "not", "there")).Free(); free <= 0 {
		t.Error(free)
	}
}

func TestManyWriters(t *testing.T) {
	path := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s := At(path) // as another process
			for range 20 {
				if err := s.Write("a", binding, nil, fill("content")); err != nil {
					t.Error(err)
				}
				if _, err := s.Read("a", binding); err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, ErrCorrupt) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, err := At(path).Read("a", binding); err != nil {
		t.Error(err)
	}
}
