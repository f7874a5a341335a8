package memfs

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func get(f *FS, name string) (string, error) {
	r, err := f.Get(name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func TestPutAndGet(t *testing.T) {
	f := newFS(t, Config{})
	for name, data := range map[string]string{
		"plain.txt": "plain\n", "empty": "", "deep/er/file": "deep", "ü und leer": "\x00\xff",
		"large": strings.Repeat("0123456789abcdef", 20000), "plain.txt.bak": "x",
	} {
		for range 2 { // the second replaces the first
			if err := f.Put(name, iotest.OneByteReader(strings.NewReader(data)), int64(len(data)), 0o600); err != nil {
				t.Errorf("put %q: %v", name, err)
			}
		}
		if got, err := get(f, name); got != data || err != nil {
			t.Errorf("get %q: %d of %d bytes, %v", name, len(got), len(data), err)
		}
	}
	for _, name := range []string{"", ".", "..", "../x", "a/../../x", "/etc/passwd", "/workspace/x", "a\x00b", "a//b", "a/./b", "a/", strings.Repeat("n", 256), "plain.txt/x"} {
		if err := f.Put(name, strings.NewReader("x"), 1, 0o644); err == nil {
			t.Errorf("put %.20q succeeded", name)
		}
		if got, err := get(f, name); err == nil {
			t.Errorf("get %.20q succeeded: %q", name, got)
		}
	}
	for _, size := range []int64{-1, 0, 2, 4, 10, 1 << 62} {
		if err := f.Put("short", strings.NewReader("abc"), size, 0o644); err == nil {
			t.Errorf("3 bytes were put as %d", size)
		}
	}
	if err := f.Put("short", iotest.ErrReader(errors.New("broken")), 3, 0o644); err == nil {
		t.Error("a broken reader was put")
	}
	if _, err := get(f, "short"); !errors.Is(err, ErrNotExist) {
		t.Errorf("after puts that failed: %v, want %v", err, ErrNotExist)
	}
	if err := f.Put("deep", strings.NewReader("x"), 1, 0o644); !errors.Is(err, ErrIsDir) {
		t.Errorf("put at a directory: %v, want %v", err, ErrIsDir)
	}
	if _, err := get(f, "deep"); !errors.Is(err, ErrIsDir) {
		t.Errorf("get a directory: %v, want %v", err, ErrIsDir)
	}
}

// TestFailedPutCostsNothing: what a put has charged it gives back.
func TestFailedPutCostsNothing(t *testing.T) {
	m := &meter{}
	f := newFS(t, Config{Budget: m})
	if err := f.Put("x", strings.NewReader(strings.Repeat("x", 5000)), 6000, 0o644); err == nil || m.used != 0 {
		t.Errorf("got %v and %d bytes in use, want an error and none", err, m.used)
	}
}

func TestTransfersStayInTheWorkspace(t *testing.T) {
	f := newFS(t, Config{Tmp: 1 << 20, Files: map[string]string{"/etc/passwd": "secret"}})
	write(t, f, "/tmp/file", "secret")
	if err := f.Put("in/file", strings.NewReader("inside"), 6, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"file": "/tmp/file", "tmp": "/tmp", "etc": "../etc", "up": "../../../..", "dev": "/dev", "me": "me",
		"inside": "in", "absolute": "/workspace/in",
	} {
		if err := f.Symlink(target, f.Root(), "/workspace/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "tmp/file", "tmp/new", "tmp/d/new", "etc/passwd", "up/tmp/file", "up/tmp/new", "up", "dev/null", "dev/zero", "me", "me/x"} {
		if got, err := get(f, name); err == nil {
			t.Errorf("get %q: %q, want an error", name, got)
		}
		err := f.Put(name, strings.NewReader("new"), 3, 0o644)
		if direct := !strings.Contains(name, "/"); (err == nil) != direct {
			t.Errorf("put %q: %v, want success only where it replaces a link", name, err)
		}
	}
	for name, want := range map[string]string{"/tmp/file": "secret", "/etc/passwd": "secret"} {
		if got, err := read(f, name); got != want || err != nil {
			t.Errorf("%s is now %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"/tmp/new", "/tmp/d"} {
		if _, err := f.Stat(f.Root(), name, false); !errors.Is(err, ErrNotExist) {
			t.Errorf("stat %s: %v, want %v", name, err, ErrNotExist)
		}
	}
	for _, name := range []string{"inside/file", "absolute/file"} {
		if got, err := get(f, name); got != "inside" || err != nil {
			t.Errorf("get %q: %q, %v, want the file that the link leads to", name, got, err)
		}
	}
	if err := f.Put("inside/new", strings.NewReader("new"), 3, 0o644); err != nil {
		t.Error(err)
	}
	if got, err := read(f, "/workspace/in/new"); got != "new" || err != nil {
		t.Errorf("what was put through a link is %q, %v", got, err)
	}
}

// TestGetEnds: a file that grows while it is read has the size that it had.
func TestGetEnds(t *testing.T) {
	f := newFS(t, Config{})
	write(t, f, "/workspace/x", "before")
	r, err := f.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	write(t, f, "/workspace/x", "afterwards")
	if err := f.Unlink(f.Root(), "/workspace/x"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "afterw" || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, "afterw")
	}
	r.Close()
	if used := f.volumes[0].used; used != 0 {
		t.Errorf("%d bytes are in use after the reader was closed, want 0", used)
	}
}
