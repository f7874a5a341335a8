package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "a", "d/x/b.txt": "b", "d/c.txt": "c", "e=f": "g"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "d", "link")); err != nil {
		t.Log("no links here:", err)
	}
	in := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	for _, tt := range []struct {
		args []string
		want string // paths and contents; or the error, after !
	}{
		{nil, ""},
		{[]string{in("a.txt")}, "a.txt:a"},
		{[]string{in("a.txt") + "=in/z.txt", in("a.txt")}, "in/z.txt:a a.txt:a"},
		{[]string{in("d")}, "d/c.txt:c d/x/b.txt:b"},
		{[]string{in("d") + "/"}, "d/c.txt:c d/x/b.txt:b"},
		{[]string{in("d") + "=."}, "c.txt:c x/b.txt:b"},
		{[]string{in("e=f")}, "e=f:g"},
		{[]string{in("nothing")}, "!no such file"},
		{[]string{in("a.txt") + "=../up"}, "!below /workspace"},
		{[]string{in("a.txt") + "=/etc/x"}, "!below /workspace"},
		{[]string{in("a.txt") + "=."}, "!below /workspace"},
		{[]string{in("a.txt"), in("a.txt")}, "!another of that path"},
		{[]string{os.DevNull}, "!not a file"},
	} {
		files, err := readFiles(tt.args)
		if wrong, ok := strings.CutPrefix(tt.want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%q: %v, want %s", tt.args, err, wrong)
			}
			continue
		}
		var got []string
		for _, f := range files {
			got = append(got, f.Path+":"+string(f.Data))
		}
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%q: %q, %v", tt.args, got, err)
		}
	}
}

// What code has left is written below the directory or not at all.
func TestWriteOut(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	out, err := openOut(filepath.Join(dir, "new", "place"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	write := func(name, text string) error { return writeOut(out, name, bytes.NewReader([]byte(text))) }
	if err := write("a/b/c.txt", "c"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "new", "place", "a", "b", "c.txt")); err != nil || string(b) != "c" {
		t.Fatalf("%q, %v", b, err)
	}
	if err := write("a/b/c.txt", "other"); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("overwritten: %v", err)
	}
	if err := os.Symlink(outside, filepath.Join(out.Name(), "link")); err != nil {
		t.Skip("no links here:", err)
	}
	if err := os.Symlink(filepath.Join(outside, "target"), filepath.Join(out.Name(), "file")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "link/x", "/x", "a/../../x", "file", ""} {
		if err := write(name, "x"); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
}
