//go:build linux && (amd64 || arm64)

package wasm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// TestPrune: an image that is made leaves the newest ones, all of another kind, and nothing
// of what was given up long ago.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	aged := func(name string, age time.Duration) {
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string, age time.Duration) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		aged(name, age)
	}
	file(draftPrefix+"old", 2*abandoned)
	file(draftPrefix+"recent", abandoned/2)
	file(imagePrefix+"unsealed", time.Hour)
	want := []string{draftPrefix + "recent"}
	for _, c := range []images{{prefix: codePrefix, keep: 2}, {prefix: imagePrefix, keep: 3}} {
		c.dir, c.key = dir, fakeKey
		for i := range c.keep + 2 {
			name := fmt.Sprint(i)
			if err := c.create(t.Context(), name, func(f *os.File) error {
				_, err := f.WriteString("memory")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			seal, err := c.sealFile(name)
			if err != nil {
				t.Fatal(err)
			}
			root, err := c.existing()
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.seal(root, name)
			root.Close()
			if err != nil {
				t.Fatal(err)
			}
			age := time.Duration(c.keep+2-i) * time.Minute // an image comes after older ones
			aged(seal, age)
			aged(s.File, age)
			if i >= 2 {
				want = append(want, seal, s.File)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPruneUnused: an image that is made removes those that no start has used for long, and
// a link in the place of one, but not what it leads to.
func TestPruneUnused(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-unused - time.Hour)
	if err := os.Chtimes(elsewhere, old, old); err != nil {
		t.Fatal(err)
	}
	c := images{dir: dir, key: fakeKey, prefix: codePrefix, keep: 9}
	create := func(name string) {
		t.Helper()
		if err := c.create(t.Context(), name, func(f *os.File) error {
			_, err := f.WriteString("memory")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	create("opened")
	create("unused")
	files, err := filepath.Glob(filepath.Join(dir, codePrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, codePrefix+"link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	at := unix.NsecToTimespec(old.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, link, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	f, err := c.open(t.Context(), "opened")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	create("new")
	for name, want := range map[string]bool{"opened": true, "unused": false, "new": true} {
		if got := c.present(name); got != want {
			t.Errorf("%s: got present %v, want %v", name, got, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 { // two images and their seals
		t.Errorf("got %v, %v, want 4 files", entries, err)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Errorf("what the link leads to: got %v, want that it is there", err)
	}
}

// TestPreparedByAnotherKey: what was made with another key is not what a start needs, and
// stays where it is.
func TestPreparedByAnotherKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := &sandbox.Program{Files: fstest.MapFS{}, Argv: []string{"python3"}}
	of := func(key byte) *Engine {
		e, err := New(Options{CacheDir: dir, Key: func() ([]byte, error) { return bytes.Repeat([]byte{key}, 32), nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	one, other := of(1), of(2)
	name, err := one.imageName(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Engine{one, other} {
		if e.Prepared(p) {
			t.Errorf("before its image is made: got that all is prepared, want that it is not")
		}
		if err := e.images.create(t.Context(), name, func(f *os.File) error {
			_, err := f.WriteString("memory")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, e := range []*Engine{one, other} {
		image, err := e.images.open(t.Context(), name)
		if err != nil || !e.Prepared(p) {
			t.Errorf("key %d: got %v and that all is prepared: %v, want its image", i+1, err, e.Prepared(p))
			continue
		}
		_ = image.Close()
	}
}

// TestForgedCode: code that was changed is compiled again, and no child gets what was
// there.
func TestForgedCode(t *testing.T) {
	dir := t.TempDir()
	code := func() (name, content string) {
		t.Helper()
		e := newEngine(t, dir)
		if err := e.Prepare(t.Context(), program("hello")); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, codePrefix+"*"+sealSuffix))
		if err != nil || len(files) != 1 {
			t.Fatalf("got the seals %q, %v, want one", files, err)
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		var s seal
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(dir, s.File)
		if data, err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		return name, string(data)
	}
	first, want := code()
	if again, _ := code(); again != first {
		t.Fatalf("the second start: got the file %s, want %s", again, first)
	}
	if err := os.WriteFile(first, []byte(strings.ToUpper(want)), 0o600); err != nil {
		t.Fatal(err)
	}
	if other, got := code(); other == first || got != want {
		t.Errorf("after a change: got %q in the file %s, want %q in a new one", got, other, want)
	}
}
