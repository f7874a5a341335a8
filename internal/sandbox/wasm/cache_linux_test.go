//go:build linux && (amd64 || arm64)

package wasm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// TestPrune: an image that is made leaves the newest compiled code and the newest
// images, and nothing of what was given up long ago.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := func(name string, age time.Duration) {
		path, at := filepath.Join(dir, name), time.Now().Add(-age)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for i := range keptCode + 3 {
		file(fmt.Sprintf("%s%d", codePrefix, i), time.Duration(i)*time.Minute)
	}
	file(draftPrefix+"old", 2*abandoned)
	file(draftPrefix+"recent", abandoned/2)
	file(imagePrefix+"unsealed", time.Hour)
	c := images{dir: dir, key: func() ([]byte, error) { return bytes.Repeat([]byte{1}, 32), nil }}
	if err := c.create(t.Context(), "one", func(f *os.File) error {
		_, err := f.WriteString("memory")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pattern := range []string{codePrefix + "*", draftPrefix + "*", imagePrefix + "unsealed", imagePrefix + "*" + sealSuffix} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			got = append(got, filepath.Base(f))
		}
	}
	var want []string
	for i := range keptCode {
		want = append(want, fmt.Sprintf("%s%d", codePrefix, i))
	}
	seal, err := c.sealFile("one")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, draftPrefix+"recent", seal)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
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
