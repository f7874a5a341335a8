//go:build linux

package faults

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// TestGVisorFaults takes away what the embedded engine stands on besides its
// processes: the room for its files, and its interpreter.
func TestGVisorFaults(t *testing.T) {
	if os.Getenv("SALLYPORT_BIN") == "" || os.Geteuid() != 0 {
		sandboxtest.Skip(t, "faults.gvisor", "SALLYPORT_BIN is not set, or root does not run the test")
	}
	t.Run("faults", func(t *testing.T) {
		t.Run("disk full", gvisorDiskFull)
		t.Run("interpreter gone", gvisorInterpreterGone)
	})
}

// newGVisorHost is a host of servers that start sandboxes anew, each time.
func newGVisorHost(t *testing.T) (*chain, *engineHost) {
	t.Helper()
	c := newChain(t, os.Getenv("SALLYPORT_BIN"), nil)
	h := &engineHost{name: "gvisor", exe: c.host.Executable, place: filepath.Dir(c.home)}
	h.env = append(c.env, "SALLYPORT_ENGINE=gvisor", "SALLYPORT_SESSIONS_SNAPSHOTS=off")
	return c, h
}

// gvisorDiskFull: where there is no room for what a sandbox needs on the host, a
// start fails and leaves nothing; with room it works.
func gvisorDiskFull(t *testing.T) {
	c, h := newGVisorHost(t)
	var fillers []string
	for _, dir := range []string{"run", "cache", "state"} {
		at := filepath.Join(h.place, dir)
		if err := unix.Mount("none", at, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		filler := filepath.Join(at, "filler")
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(f, io.LimitReader(zeros{}, 8<<20)); err == nil {
			t.Fatal("the file system is not bounded")
		}
		_ = f.Close()
		fillers = append(fillers, filler)
	}
	s := h.serve(t)
	refused(t, "a call without room", wait(s.runPython("1"), containerPatience), "no space left")
	for _, f := range fillers {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	h.works(t, s, "with room again")
	gvisorEnd(t, c, h, s)
}

// gvisorInterpreterGone: the interpreter of the settings is removed while a
// session uses it. The session goes on; a new one says what is missing.
func gvisorInterpreterGone(t *testing.T) {
	c, h := newGVisorHost(t)
	python := filepath.Join(h.place, "python3")
	if err := os.Symlink("/usr/bin/python3", python); err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "SALLYPORT_PYTHON="+python)
	s := h.serve(t)
	h.works(t, s, "before anything is gone")
	if err := os.Remove(python); err != nil {
		t.Fatal(err)
	}
	h.works(t, s, "the session that ran")
	gvisorEnd(t, c, h, s)
	next := h.serve(t)
	refused(t, "a new session", wait(next.runPython("1"), containerPatience), python)
	if err := os.Symlink("/usr/bin/python3", python); err != nil {
		t.Fatal(err)
	}
	h.works(t, next, "with the interpreter back")
	gvisorEnd(t, c, h, next)
}

// gvisorEnd hangs up and waits until nothing is left.
func gvisorEnd(t *testing.T, c *chain, h *engineHost, s *client) {
	t.Helper()
	_ = s.stdin.Close()
	<-s.ended
	eventuallyWithin(t, "left behind", containerPatience, c.host.Left)
}
