//go:build linux

package sandboxtest

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// transfer copies files into and out of a live run without the guest's help,
// and against a guest that plants links where the host's files would go.
func (s *suite) transfer(t *testing.T) {
	sess := s.start(t, s.backend(t), s.spec())
	f, ok := sandbox.As[sandbox.FileTransferer](sess.run)
	if !ok {
		Skip(t, s.cfg.Engine+".transfer", "the engine transfers no files")
	}
	put := func(path, data string) error {
		return f.Put(t.Context(), path, strings.NewReader(data), int64(len(data)))
	}
	get := func(path string) (string, error) {
		r, err := f.Get(t.Context(), path)
		if err != nil {
			return "", err
		}
		defer r.Close()
		b, err := io.ReadAll(io.LimitReader(r, 64<<20))
		return string(b), err
	}
	t.Run("round trip", func(t *testing.T) {
		for name, data := range map[string]string{
			"plain.txt": "plain\n", "empty": "", "deep/er/file": "deep",
			"large": strings.Repeat("0123456789abcdef", 10<<20/16), "ü und leer": string(every()),
		} {
			if err := put(name, data); err != nil {
				t.Errorf("put %q: %v", name, err)
			} else if got, err := get(name); err != nil || got != data {
				t.Errorf("get %q: %d bytes of %d, %v", name, len(got), len(data), err)
			}
		}
		if got := sess.must(t, "print(open('plain.txt').read() + open('deep/er/file').read())"); got != "plain\ndeep\n" {
			t.Errorf("the guest reads %q", got)
		}
		sess.must(t, "open('made', 'wb').write(bytes(range(256))) and None")
		if got, err := get("made"); err != nil || !bytes.Equal([]byte(got), every()) {
			t.Errorf("what the guest made: %q, %v", got, err)
		}
		if _, err := get("no such file"); err == nil {
			t.Error("read a file that does not exist")
		}
	})
	t.Run("bad paths", func(t *testing.T) {
		for _, path := range []string{"", ".", "..", "../x", "a/../../x", "/etc/passwd", "/workspace/x", "a\x00b"} {
			if err := put(path, "x"); err == nil {
				t.Errorf("put %q succeeded", path)
			}
			if got, err := get(path); err == nil {
				t.Errorf("get %q succeeded: %.40q", path, got)
			}
		}
		// A size that differs from the data's must not be trusted.
		if err := f.Put(t.Context(), "short", strings.NewReader("abc"), 10); err == nil {
			t.Error("3 bytes were put as 10")
		}
	})
	t.Run("links", func(t *testing.T) {
		dir := t.TempDir() // of the host
		host := hostFile(t, dir, "the host's own")
		sess.must(t, `
import os
for name, target in (("file", `+quote(host)+`), ("dir", `+quote(dir)+`), ("etc", "/etc"), ("up", "../../../../../.."), ("proc", "/proc/self/root")):
    os.symlink(target, name)
`)
		for _, path := range []string{"file", "dir/canary", "dir/new", "etc/passwd", "up" + host, "proc" + host} {
			_ = put(path, "overwritten by the guest")
			if got, err := get(path); err == nil && got == "the host's own" {
				t.Errorf("get %q reads the host's file", path)
			}
		}
		if got := readString(host); got != "the host's own" {
			t.Errorf("the host's file is now %q", got)
		}
		if got := readString(dir + "/new"); got != "" {
			t.Errorf("the host's directory has a new file: %q", got)
		}
	})
	sess.usable(t, "the session after transfers")
}

// quote returns a path as a Python literal.
func quote(s string) string { return strconv.QuoteToASCII(s) }

// hostFile writes a file on the host that no guest may touch.
func hostFile(t *testing.T, dir, data string) string {
	t.Helper()
	path := filepath.Join(dir, "canary")
	if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}
