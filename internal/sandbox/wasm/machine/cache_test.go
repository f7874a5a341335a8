//go:build linux

package machine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A cacheTest opens machines with one cache.
type cacheTest struct {
	t       *testing.T
	config  Config
	scratch string
}

// opened reports whether opening a machine compiled the interpreter.
func (c cacheTest) opened() (compiled bool) {
	c.t.Helper()
	config := c.config
	var steps []bool
	config.Progress = func(p Progress) { steps = append(steps, p.Done) }
	m, err := Open(c.t.Context(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	img := bootTiny(c.t, m)
	c.t.Cleanup(func() { m.Close(context.Background()) })
	s, in, out := pipes(c.t)
	session, err := img.Start(c.t.Context(), s)
	if err != nil {
		c.t.Fatal(err)
	}
	k := attach(c.t, session, in, out)
	k.say("c")
	k.hear("1")
	if left, err := os.ReadDir(c.scratch); err != nil || len(left) > 0 {
		c.t.Errorf("left behind: %v, %v", left, err)
	}
	switch {
	case len(steps) == 0:
		return false
	case len(steps) == 2 && !steps[0] && steps[1]:
		return true
	}
	c.t.Fatalf("progress: %v", steps)
	return
}

// emptyFile returns a file for compiled code.
func emptyFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "code"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// openKept returns a machine with an interpreter whose code is kept in a directory.
func openKept(t *testing.T, dir string, i Interpreter) *Machine {
	t.Helper()
	sum := sha256.Sum256([]byte(i.Digest + Binding()))
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("code-%x", sum[:8])), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil { // until it is closed
		t.Fatal(err)
	}
	m, err := Open(t.Context(), Config{Code: f, Interpreter: i})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return m
}

// memoryFile returns a new file that only this process has.
func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func newCacheTest(t *testing.T) cacheTest {
	scratch := t.TempDir()
	c := cacheTest{t: t, scratch: scratch, config: Config{Code: emptyFile(t), ScratchDir: scratch, Interpreter: tiny}}
	if !c.opened() {
		t.Fatal("nothing was compiled at first")
	}
	return c
}

// TestCache: what was compiled is used, also from a file that can only be read.
func TestCache(t *testing.T) {
	c := newCacheTest(t)
	if c.opened() {
		t.Error("compiled although the code was there")
	}
	f, err := os.Open(c.config.Code.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.config.Code = f
	if c.opened() {
		t.Error("compiled although the code was there, in a file that can only be read")
	}
}

// TestNoCode: a file that holds something else is refused.
func TestNoCode(t *testing.T) {
	for _, content := range []string{"x", strings.Repeat("x", codeName), strings.Repeat("A", 2*codeName)} {
		c := Config{Code: emptyFile(t), ScratchDir: t.TempDir(), Interpreter: tiny}
		if _, err := c.Code.WriteString(content); err != nil {
			t.Fatal(err)
		}
		if m, err := Open(t.Context(), c); err == nil {
			m.Close(t.Context())
			t.Errorf("%d bytes: got a machine, want an error", len(content))
		}
	}
}

// TestUnkept: an interpreter whose code cannot be kept runs, and says why.
func TestUnkept(t *testing.T) {
	code, err := os.Open(emptyFile(t).Name())
	if err != nil {
		t.Fatal(err)
	}
	defer code.Close()
	var unkept error
	m, err := Open(t.Context(), Config{
		Interpreter: tiny, Code: code, ScratchDir: t.TempDir(),
		Progress: func(p Progress) { unkept = p.Unkept },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	if !errors.Is(unkept, syscall.EBADF) {
		t.Errorf("got %v, want %v", unkept, syscall.EBADF)
	}
}

// TestNoScratch: without a place for wazero's directory an interpreter is compiled, and
// says why that is not kept; code that is there is used all the same.
func TestNoScratch(t *testing.T) {
	c := newCacheTest(t)
	c.config.ScratchDir = filepath.Join(t.TempDir(), "none")
	if c.opened() {
		t.Error("compiled although the code was there")
	}
	var unkept error
	c.config.Code = emptyFile(t)
	c.config.Progress = func(p Progress) { unkept = p.Unkept }
	m, err := Open(t.Context(), c.config)
	if err != nil {
		t.Fatal(err)
	}
	m.Close(t.Context())
	if !errors.Is(unkept, fs.ErrNotExist) {
		t.Errorf("got %v, want an error about %s", unkept, c.config.ScratchDir)
	}
}
