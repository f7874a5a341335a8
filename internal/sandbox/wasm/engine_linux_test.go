//go:build linux && (amd64 || arm64)

package wasm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func program(main string) *sandbox.Program {
	return &sandbox.Program{Files: fstest.MapFS{"main.py": {Data: []byte(main)}}, Argv: []string{sandbox.InterpreterArg, "main.py"}, Env: []string{"FROM=program"}}
}

func fakeKey() ([]byte, error) { return bytes.Repeat([]byte{7}, 32), nil }

func newEngine(t *testing.T, dir string) *Engine {
	t.Helper()
	e, err := New(Options{Executable: "/proc/self/exe", CacheDir: dir, Key: fakeKey})
	if err != nil {
		t.Fatal(err)
	}
	e.confinable = func() bool { return true } // what the child of tests does is in confine
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func spec(id string) *sandbox.Spec {
	return &sandbox.Spec{ID: id, Program: program("hello")}
}

// conversation is a run and its streams.
type conversation struct {
	*run
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T, e *Engine, s *sandbox.Spec) conversation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := e.Start(ctx, s)
	return converse(t, r, err)
}

func converse(t *testing.T, r sandbox.Run, err error) conversation {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Destroy(context.Background()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	})
	ch := r.(*run).Channel()
	return conversation{r.(*run), ch.Stdin, bufio.NewReader(ch.Stdout)}
}

func (c conversation) say(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		t.Fatal(err)
	}
}

func (c conversation) hear(t *testing.T, want string) {
	t.Helper()
	got, err := c.out.ReadString('\n')
	if err != nil || got != want+"\n" {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func (c conversation) exit(t *testing.T) sandbox.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := c.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

func TestSession(t *testing.T) {
	e := newEngine(t, t.TempDir())
	s := spec("one")
	s.Env = map[string]string{"GIVEN": "yes"}
	s.Files = []sandbox.File{{Path: "a", Data: []byte("b")}}
	c := start(t, e, s)
	c.say(t, "x")
	c.hear(t, "echo x")
	c.say(t, "image")
	c.hear(t, `image of hello ["{interpreter}" "main.py" "single"]`)
	c.say(t, "env")
	c.hear(t, "[FROM=program GIVEN=yes]")
	c.say(t, "files")
	c.hear(t, "[{a [98] 0}]")
	for _, step := range []struct {
		do   func(context.Context) error
		want string
	}{{c.Interrupt, "interrupted"}, {c.Pause, "paused"}, {c.Resume, "resumed"}} {
		if err := step.do(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.hear(t, step.want)
	}
	u, err := c.Usage(t.Context())
	if want := (sandbox.Usage{CPU: 1500 * time.Microsecond, MemoryBytes: 2, PeakBytes: 3}); err != nil || u != want {
		t.Errorf("Usage: got %+v, %v, want %+v", u, err, want)
	}
	c.say(t, "exit")
	if exit := c.exit(t); exit != (sandbox.Exit{Code: 3, Reason: sandbox.Exited}) {
		t.Errorf("exit: got %+v, want code 3", exit)
	}
	if err := c.Interrupt(t.Context()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Interrupt after the end: got %v, want ErrGone", err)
	}
}

func TestDestroy(t *testing.T) {
	e := newEngine(t, t.TempDir())
	one, two := start(t, e, spec("one")), start(t, e, spec("two"))
	if one.child != two.child {
		t.Error("two runs have two processes, want one")
	}
	for range 2 {
		if err := one.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if exit := one.exit(t); exit.Reason != sandbox.Destroyed {
		t.Errorf("exit: got %+v, want Destroyed", exit)
	}
	two.say(t, "still there")
	two.hear(t, "echo still there")
	start(t, e, spec("one")).say(t, "a run with the ID of one that is gone")
}

// TestGivenUp: a start that is given up leaves no session behind.
func TestGivenUp(t *testing.T) {
	e := newEngine(t, t.TempDir())
	first := start(t, e, spec("first"))
	open := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", first.child.cmd.Process.Pid))
		if err != nil {
			t.Skip("the process shows its descriptors to root alone: ", err)
		}
		return len(entries)
	}
	before := open()
	for _, wait := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 99 * time.Millisecond, 101 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		r, err := e.Start(ctx, spec("slow"))
		cancel()
		if err == nil {
			_ = r.Destroy(t.Context())
		}
	}
	for deadline := time.Now().Add(time.Minute); open() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the process has %d descriptors, and had %d before", open(), before)
		}
	}
}

// TestDeath: when the process of all sessions ends, each learns it, and the next start
// has a new process.
func TestDeath(t *testing.T) {
	for _, how := range []string{"crash", "escape", "killed"} {
		t.Run(how, func(t *testing.T) {
			if how == "escape" && !confinable() {
				t.Skip("a program that uses cgo cannot confine all of its threads: set CGO_ENABLED=0")
			}
			e := newEngine(t, t.TempDir())
			one, two := start(t, e, spec("one")), start(t, e, spec("two"))
			if how == "killed" {
				_ = one.child.cmd.Process.Kill()
			} else {
				one.say(t, how)
			}
			for _, c := range []conversation{one, two} {
				if exit := c.exit(t); exit.Reason != sandbox.EngineDied || exit.Detail == "" || exit.Code != 137 {
					t.Errorf("exit: got %+v, want EngineDied", exit)
				}
			}
			if _, err := two.Usage(t.Context()); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("Usage: got %v, want ErrGone", err)
			}
			three := start(t, e, spec("three"))
			three.say(t, "x")
			three.hear(t, "echo x")
		})
	}
}

// TestLostStart: a start whose process ends because of others has another one.
func TestLostStart(t *testing.T) {
	e := newEngine(t, t.TempDir())
	first := start(t, e, spec("first"))
	pid := first.child.cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Until all of its threads have stopped, it may start the session.
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	type result struct {
		run sandbox.Run
		err error
	}
	started := make(chan result, 1)
	go func() {
		r, err := e.Start(t.Context(), spec("second"))
		started <- result{r, err}
	}()
	for deadline := time.Now().Add(time.Minute); first.child.count() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second session does not start")
		}
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := <-started
	second := converse(t, got.run, got.err)
	second.say(t, "x")
	second.hear(t, "echo x")
	if second.child == first.child {
		t.Error("the second session has the process that has ended")
	}
}

// TestOrphan: the process of the sessions ends with its program, however that ends, and
// even if it does not read what the program says.
func TestOrphan(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{parentEnv + "=" + t.TempDir()}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		_, err = fmt.Fscan(out, &pid)
		if err == nil && stopped {
			err = unix.Kill(pid, unix.SIGSTOP)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); !gone(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				_ = unix.Kill(pid, unix.SIGKILL)
				t.Fatalf("stopped %v: the process of the sessions lives on", stopped)
			}
		}
	}
}

// gone reports whether a process has ended, reaped or not.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > 0 && fields[0] == "Z"
}

func TestTransfer(t *testing.T) {
	e := newEngine(t, t.TempDir())
	c := start(t, e, spec("one"))
	data := strings.Repeat("0123456789", 1<<20)
	if err := c.Put(t.Context(), "large", strings.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (string, error) {
		r, err := c.Get(t.Context(), path)
		if err != nil {
			return "", err
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		return string(b), err
	}
	if got, err := get("large"); err != nil || got != data {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(data))
	}
	if _, err := get("none"); err == nil {
		t.Error("got a file that does not exist")
	}
	for _, size := range []int64{2, 4} {
		if err := c.Put(t.Context(), "wrong", strings.NewReader("abc"), size); err == nil {
			t.Errorf("3 bytes were put as %d", size)
		}
	}
	if err := c.Put(t.Context(), "short", strings.NewReader("abc"), 3); err != nil {
		t.Fatal(err)
	}
	if got, err := get("short"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that breaks off: got %q, %v, want an error", got, err)
	}
}

func TestSnapshot(t *testing.T) {
	e := newEngine(t, t.TempDir())
	s := spec("one")
	c := start(t, e, s)
	c.say(t, "remembered")
	c.hear(t, "echo remembered")
	kept, moved := t.TempDir(), t.TempDir()
	if err := c.Snapshot(t.Context(), kept, true); err != nil {
		t.Fatal(err)
	}
	c.say(t, "later")
	c.hear(t, "echo later")
	if err := c.Snapshot(t.Context(), moved, false); err != nil {
		t.Fatal(err)
	}
	if exit := c.exit(t); exit.Reason != sandbox.Destroyed {
		t.Errorf("exit after a snapshot: got %+v, want Destroyed", exit)
	}
	open := func(dir string) sandbox.Image {
		f, err := os.Open(filepath.Join(dir, snapshotName))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return sandbox.Image{Files: []*os.File{f}}
	}
	for i, dir := range []string{kept, moved} {
		r, err := e.Restore(t.Context(), spec(fmt.Sprint("copy-", i)), open(dir))
		copied := converse(t, r, err)
		copied.say(t, "said")
		copied.hear(t, []string{"remembered", "later"}[i])
	}
	// A session that is never idle: the snapshot is given up, and the session goes on.
	busy := start(t, e, spec("busy"))
	busy.say(t, "never")
	busy.hear(t, "echo never")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	dir := t.TempDir()
	if err := busy.Snapshot(ctx, dir, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a snapshot of a busy session: got %v, want DeadlineExceeded", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want nothing in the directory", left, err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		busy.say(t, "said")
		got, err := busy.out.ReadString('\n')
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("got %q, %v, want that the snapshot is given up", got, err)
		}
		if got == "given up\n" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	refused := errors.New("not what was saved")
	image := open(kept)
	image.Check = func(context.Context) error { return refused }
	if _, err := e.Restore(t.Context(), spec("three"), image); !errors.Is(err, refused) {
		t.Errorf("a snapshot that was changed: got %v, want that it is refused", err)
	}
	if _, err := e.Restore(t.Context(), spec("four"), sandbox.Image{}); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Errorf("a snapshot without files: got %v, want ErrInvalidSpec", err)
	}
}

func TestCheck(t *testing.T) {
	e := newEngine(t, t.TempDir())
	for what, change := range map[string]func(*sandbox.Spec){
		"an image":       func(s *sandbox.Spec) { s.Root.Image = "python" },
		"an interpreter": func(s *sandbox.Spec) { s.Root.Interpreter = "/usr/bin/python3" },
		"a network":      func(s *sandbox.Spec) { s.Network.Internet = true },
		"a folder": func(s *sandbox.Spec) {
			s.Mounts = []sandbox.Mount{{Source: "/srv", Target: "/mnt/srv", Mode: sandbox.ReadOnly}}
		},
	} {
		s := spec("one")
		change(s)
		if _, err := e.Start(t.Context(), s); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%s: got %v, want ErrUnsupported", what, err)
		}
	}
	failing := spec("one")
	failing.Program = program("fail")
	if _, err := e.Start(t.Context(), failing); !errors.Is(err, sandbox.ErrStart) || !strings.Contains(err.Error(), "could not be loaded") {
		t.Errorf("a program that does not load: got %v, want ErrStart that says why", err)
	}
	start(t, e, spec("one")).say(t, "x")
}

// TestImages: an image is made once, and one that was changed is made anew.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	made := 0
	run := func() {
		e := newEngine(t, dir)
		e.opts.Progress = func(p Progress) {
			mu.Lock()
			defer mu.Unlock()
			if p.Done {
				made++
			}
		}
		c := start(t, e, spec("one"))
		c.say(t, "image")
		c.hear(t, `image of hello ["{interpreter}" "main.py" "single"]`)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Each child of the fake says that it compiles: two for the first start, one for
	// the next.
	run()
	if made != 2 {
		t.Fatalf("the first start: %d processes, want 2", made)
	}
	run()
	if made != 3 {
		t.Fatalf("the second start: %d processes more, want 1", made-2)
	}
	files, err := filepath.Glob(filepath.Join(dir, imagePrefix+"*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("got %q, %v, want an image and its seal", files, err)
	}
	f := files[0]
	data, err := os.ReadFile(f)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(f, data, 0o600); err != nil {
		t.Fatal(err)
	}
	before := made
	run()
	if made != before+2 {
		t.Errorf("after a change to %s: %d processes, want 2", filepath.Base(f), made-before)
	}
	if files, _ = filepath.Glob(filepath.Join(dir, imagePrefix+"*")); len(files) < 2 {
		t.Errorf("got %q, want an image and its seal", files)
	}
}
