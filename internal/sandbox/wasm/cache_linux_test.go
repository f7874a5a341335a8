//go:build linux && (amd64 || arm64)

package wasm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
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
	for _, pattern := range []string{codePrefix + "*", draftPrefix + "*", imagePrefix + "unsealed", imagePrefix + "one*"} {
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
	want = append(want, draftPrefix+"recent", imagePrefix+"one"+sealSuffix)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
