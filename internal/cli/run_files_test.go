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

// What code has left is written below the directory or not at all, and replaces
// nothing.
func TestWriteOut(t *testing.T) {
	dir, outside := filepath.Join(t.TempDir(), "new", "place"), t.TempDir()
	var said bytes.Buffer
	out := &outDir{dir: dir, err: &said}
	defer out.close()
	write := func(name, text string) error { return out.copy(name, strings.NewReader(text)) }
	holds := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v; want %q", name, b, err, want)
		}
	}
	for _, f := range []struct{ name, text, as string }{
		{"a/b/c.txt", "c", "a/b/c.txt"},
		{"a/b/c.txt", "other", "a/b/c-1.txt"},
		{"a/b/c.txt", "third", "a/b/c-2.txt"},
		{".hidden", "1", ".hidden"},
		{".hidden", "2", ".hidden-1"},
		{"plain", "1", "plain"},
		{"plain/x.txt", "below a file", "plain-1/x.txt"},
		{"plain/x.txt", "again", "plain-1/x.txt"}, // the next name is plain-2
		{"a", "where a directory is", "a-1"},
	} {
		if err := write(f.name, f.text); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		if f.text == "again" {
			continue
		}
		holds(f.as, f.text)
		if f.as != f.name && !strings.Contains(said.String(), filepath.FromSlash(f.as)+" (") {
			t.Errorf("%s: %q does not say its other name", f.name, said.String())
		}
	}
	holds("a/b/c.txt", "c")
	holds("plain", "1")

	w, done, err := out.create("part.bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if err := done(false); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "part.bin")); !os.IsNotExist(err) {
		t.Errorf("what did not come whole is there: %v", err)
	}

	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Skip("no links here:", err)
	}
	if err := os.Symlink(filepath.Join(outside, "target"), filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "link/x", "/x", "a/../../x", ""} {
		if err := write(name, "x"); err == nil {
			t.Errorf("%q was written", name)
		}
	}
	if err := write("file", "x"); err != nil {
		t.Error(err)
	}
	holds("file-1", "x")
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
}
