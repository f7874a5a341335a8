package snapshot

import (
	"errors"
	"io"
	"os"
	"path/filepath"
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
	if err := s.Write(name, binding, Plain, map[string]int{"n": 1}, fill(content)); err != nil {
		t.Fatal(err)
	}
}

// read opens and checks a snapshot, which is closed when the test ends.
func read(t *testing.T, s *Store, name, binding string) (*Snapshot, error) {
	t.Helper()
	got, err := s.Open(name, binding)
	if err != nil {
		return nil, err
	}
	t.Cleanup(got.Close)
	if err := got.Check(t.Context()); err != nil {
		return nil, err
	}
	return got, nil
}

// content reads one of its files.
func content(t *testing.T, got *Snapshot, name string) []byte {
	t.Helper()
	for _, f := range got.Files() {
		if filepath.Base(f.Name()) != name {
			continue
		}
		data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	t.Fatalf("no file %s", name)
	return nil
}

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "not", "there")
	s := At(path)
	if _, err := s.Open("a", binding); !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "another"} {
		write(t, s, "a", text)
		// Another process has the same key.
		for _, reader := range []*Store{s, At(path)} {
			got, err := read(t, reader, "a", binding)
			if err != nil {
				t.Fatal(err)
			}
			if data := content(t, got, "state"); string(data) != text || string(got.Note) != `{"n":1}` || got.Size != int64(len(text)) {
				t.Errorf("%s %+v", data, got)
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

// A snapshot that could not be written leaves the one before, and nothing else.
func TestFailedWrite(t *testing.T) {
	s := At(t.TempDir())
	write(t, s, "a", "one")
	failed := errors.New("the disk is full")
	err := s.Write("a", binding, Plain, nil, func(dir string) error {
		return errors.Join(fill("two")(dir), failed)
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if got, err := read(t, s, "a", binding); err != nil || got.Size != 3 {
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
				if err := s.Write("a", binding, Plain, nil, fill("content")); err != nil {
					t.Error(err)
				}
				if _, err := read(t, s, "a", binding); err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, ErrCorrupt) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if _, err := read(t, At(path), "a", binding); err != nil {
		t.Error(err)
	}
}
