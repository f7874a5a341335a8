//go:build linux

package machine

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/wasi"
)

//go:embed testdata/session.wasm
var letters []byte

// A hang is what takes longer than this.
const hang = time.Minute

// tiny is an interpreter of the letters that testdata/session.wat describes.
var tiny = Interpreter{
	Module: func() ([]byte, error) { return letters, nil },
	Digest: "tiny",
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openTiny returns a machine and an image of tiny.
func openTiny(t testing.TB) *Image {
	t.Helper()
	m, err := Open(t.Context(), Config{Interpreter: tiny})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return bootTiny(t, m)
}

func bootTiny(t testing.TB, m *Machine) *Image {
	t.Helper()
	f, err := memoryFile("image")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := m.Boot(t.Context(), Program{Digest: "letters", Argv: []string{sandbox.InterpreterArg}}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

// A talk is a session with the other ends of its streams.
type talk struct {
	*Session
	t       testing.TB
	in, out *os.File
}

// pipes returns the streams of a session and the ends of the test.
func pipes(t testing.TB) (c SessionConfig, in, out *os.File) {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	c.Stdin, in = pipe()
	out, c.Stdout = pipe()
	stderr, w := pipe()
	c.Stderr = w
	t.Cleanup(func() { closeFiles(in, out, stderr) })
	return c, in, out
}

// start starts a session with limits.
func start(t testing.TB, img *Image, limits sandbox.Limits) *talk {
	t.Helper()
	c, in, out := pipes(t)
	c.Limits = limits
	s, err := img.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return attach(t, s, in, out)
}

func attach(t testing.TB, s *Session, in, out *os.File) *talk {
	t.Cleanup(func() {
		s.Kill(sandbox.Destroyed)
		<-s.Done()
	})
	return &talk{s, t, in, out}
}

// say gives the session letters.
func (k *talk) say(letters string) {
	k.t.Helper()
	if _, err := k.in.WriteString(letters); err != nil {
		k.t.Fatal(err)
	}
}

// hear returns as many letters as want has and fails if they are others.
func (k *talk) hear(want string) {
	k.t.Helper()
	got := make([]byte, len(want))
	k.out.SetReadDeadline(time.Now().Add(hang))
	for i := range got {
		if _, err := k.out.Read(got[i : i+1]); err != nil {
			k.t.Fatalf("after %q: %v", got[:i], err)
		}
	}
	if string(got) != want {
		k.t.Fatalf("got %q, want %q", got, want)
	}
}

// interrupted interrupts the session until it says a letter. An interrupt that comes
// before it has begun to obey is lost.
func (k *talk) interrupted(want string) {
	k.t.Helper()
	got := make([]byte, 1)
	until(k.t, "the interrupt", func() bool {
		k.Interrupt()
		k.out.SetReadDeadline(time.Now().Add(time.Millisecond))
		n, _ := k.out.Read(got)
		return n == 1
	})
	if string(got) != want {
		k.t.Fatalf("got %q, want %q", got, want)
	}
}

// ends waits for the session's end.
func (k *talk) ends() sandbox.Exit {
	k.t.Helper()
	select {
	case <-k.Done():
		return k.Exit()
	case <-time.After(hang):
		k.t.Fatal("the session does not end")
		panic("unreachable")
	}
}

// until waits for a condition.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestSessionsAreCopies(t *testing.T) {
	img := openTiny(t)
	a, b := start(t, img, sandbox.Limits{}), start(t, img, sandbox.Limits{})
	a.say("cccw")
	a.hear("123w")
	b.say("cv")
	b.hear("1\x00")
	a.say("v")
	a.hear("A")
	c := start(t, img, sandbox.Limits{})
	c.say("cv")
	c.hear("1\x00")
}

func TestEnds(t *testing.T) {
	img := openTiny(t)
	tests := []struct {
		name, letters string
		want          sandbox.Exit
	}{
		{"exit", "x", sandbox.Exit{Code: 7, Reason: sandbox.Exited}},
		{"failure", "f", sandbox.Exit{Code: 1, Reason: sandbox.Exited, Detail: "the program has failed"}},
		{"trap", "u", sandbox.Exit{Code: 134, Reason: sandbox.Exited, Detail: "the interpreter has crashed: wasm error: unreachable"}},
		{"out of bounds", "o", sandbox.Exit{Code: 134, Reason: sandbox.Exited, Detail: "the interpreter has crashed: wasm error: out of bounds memory access"}},
		{"recursion", "r", sandbox.Exit{Code: 134, Reason: sandbox.Exited, Detail: "the interpreter has crashed: stack overflow"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, img, sandbox.Limits{})
			s.say(test.letters)
			if got := s.ends(); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	t.Run("end of input", func(t *testing.T) {
		s := start(t, img, sandbox.Limits{})
		s.in.Close()
		if got, want := s.ends(), (sandbox.Exit{Reason: sandbox.Exited}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func TestTimer(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("t")
	s.hear("T")
	s.say("c")
	s.hear("1")
}

func TestInterrupt(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("l")
	s.interrupted("i")
	s.say("y")
	s.interrupted("i")
	s.say("p") // the red zone of whoever was interrupted
	s.hear("\x80")
	s.say("bz")
	s.hear("z")

	// A wait in a call.
	s.say("b")
	s.interrupted("e")
	s.say("l")
	s.hear("i") // of the interrupt, which the module has noted
}

// TestInterruptBeforeAWait: what is interrupted on its way into a wait does not wait, and
// does the next time. A pause for the CPU limit in between changes nothing.
func TestInterruptBeforeAWait(t *testing.T) {
	s := &Session{wake: wakeup{event: -1, fd: -1}, unheard: true}
	s.sleep(time.Millisecond)
	for _, want := range []wasi.Outcome{wasi.Interrupted, wasi.TimedOut} {
		if got := s.Wait(t.Context(), -1, false, 0); got != want {
			t.Errorf("Wait = %v, want %v", got, want)
		}
	}
}

// TestIdleInterrupt: an interrupt of a session that has nothing to do is none of what
// it does next.
func TestIdleInterrupt(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("c")
	s.hear("1")
	until(t, "the session is parked", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.state == parked
	})
	s.Interrupt()
	s.say("b")
	s.say("z")
	s.hear("z")
}

func TestKill(t *testing.T) {
	img := openTiny(t)
	for name, letters := range map[string]string{"parked": "", "computing": "l", "calling the host": "y", "waiting": "b"} {
		t.Run(name, func(t *testing.T) {
			s := start(t, img, sandbox.Limits{})
			s.say("c" + letters)
			s.hear("1")
			s.Kill(sandbox.Destroyed)
			s.Kill(sandbox.EngineDied) // comes too late
			if got, want := s.ends(), (sandbox.Exit{Code: 137, Reason: sandbox.Destroyed}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			s.Kill(sandbox.Destroyed)
			s.Interrupt()
		})
	}
}

func TestPause(t *testing.T) {
	img := openTiny(t)
	t.Run("computing", func(t *testing.T) {
		s := start(t, img, sandbox.Limits{})
		s.say("l")
		until(t, "the session computes", func() bool { return s.Usage().CPU > 20*time.Millisecond })
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := s.Usage().CPU
		time.Sleep(50 * time.Millisecond)
		// The thread itself may use a little to stop.
		if used := s.Usage().CPU - before; used > 25*time.Millisecond {
			t.Errorf("used %v while it was paused", used)
		}
		s.Resume()
		s.interrupted("i")
	})
	t.Run("parked", func(t *testing.T) {
		s := start(t, img, sandbox.Limits{})
		s.say("c")
		s.hear("1")
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.say("c")
		s.out.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := s.out.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes of a paused session, %v", n, err)
		}
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Resume()
		s.hear("2")
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Kill(sandbox.Destroyed)
		s.ends()
		if err := s.Pause(t.Context()); err != nil {
			t.Errorf("pause after the end: %v", err)
		}
	})
}

func TestMemoryLimit(t *testing.T) {
	img := openTiny(t)
	// The image has two pages. Three megabytes more fit, the fourth does not.
	s := start(t, img, sandbox.Limits{MemoryBytes: 4 << 20})
	s.say("gggggc")
	s.hear("yyynn1")
	if !s.budget.Take(4<<20 - 3<<20 - 2*wasmPage) {
		t.Error("the rest of the limit cannot be taken")
	}
	if s.budget.Take(1) {
		t.Error("more than the limit could be taken")
	}

	c, _, _ := pipes(t)
	c.Limits.MemoryBytes = wasmPage
	if _, err := img.Start(t.Context(), c); err == nil {
		t.Error("a session started with less memory than its image")
	}
	if _, err := c.Stdin.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the streams of a session that did not start: %v, want closed", err)
	}
}

func TestUsage(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("c")
	s.hear("1")
	before := s.Usage()
	s.say("w")
	s.hear("w")
	after := s.Usage()
	if s.image.machine.pages == nil {
		t.Skip("the kernel does not show a process its pages")
	}
	if got := after.MemoryBytes - before.MemoryBytes; got < 4*pageSize || got > 6*int64(os.Getpagesize()) {
		t.Errorf("writing 5 pages cost %d bytes", got)
	}
	if after.PeakBytes < after.MemoryBytes {
		t.Errorf("peak %d below %d", after.PeakBytes, after.MemoryBytes)
	}
	if after.MemoryBytes >= 2*wasmPage {
		t.Errorf("%d bytes: pages of the image count", after.MemoryBytes)
	}
}

func TestCPULimit(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{CPUs: 0.25})
	begin := time.Now()
	s.say("l")
	until(t, "the session has used its time", func() bool { return s.Usage().CPU > 200*time.Millisecond })
	// A quarter of a core takes 800 ms for it, but for what it had saved.
	if took := time.Since(begin); took < 400*time.Millisecond {
		t.Errorf("a quarter of a core for 200 ms took %v", took)
	}
	s.interrupted("i")
}

// TestOthersRun: sessions that compute on all processors leave time to others.
func TestOthersRun(t *testing.T) {
	img := openTiny(t)
	var busy []*talk
	for range 8 {
		s := start(t, img, sandbox.Limits{})
		s.say("l")
		busy = append(busy, s)
	}
	other := start(t, img, sandbox.Limits{})
	for range 5 {
		other.say("w")
		other.hear("w")
	}
	for _, s := range busy {
		s.interrupted("i")
	}
}

func TestSnapshot(t *testing.T) {
	img := openTiny(t)
	s := start(t, img, sandbox.Limits{})
	s.say("ccwgm")
	s.hear("12wy0")
	var kept, last bytes.Buffer
	if err := s.Snapshot(t.Context(), &kept, true); err != nil {
		t.Fatal(err)
	}
	s.say("c")
	s.hear("3")
	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(t.Context(), &last, false); err != nil {
		t.Fatal(err)
	}
	if got, want := s.ends(), (sandbox.Exit{Code: 137, Reason: sandbox.Destroyed}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if err := s.Snapshot(t.Context(), &last, false); err == nil {
		t.Error("a snapshot of a session that has ended")
	}
	// 5 pages of letters, the highest, those of the module's data.
	if n := kept.Len(); n < 6*pageSize || n > 16*pageSize {
		t.Errorf("the snapshot has %d bytes", n)
	}
	for _, test := range []struct {
		data []byte
		want string
	}{{kept.Bytes(), "3A7"}, {last.Bytes(), "4A7"}} {
		// On an image of another boot, which is the same.
		r := restore(t, bootTiny(t, img.machine), test.data)
		r.say("cvm")
		r.hear(test.want)
		r.say("g")
		r.hear("y")
	}
}

func restore(t *testing.T, img *Image, data []byte) *talk {
	t.Helper()
	c, in, out := pipes(t)
	s, err := img.Restore(t.Context(), c, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return attach(t, s, in, out)
}

func TestSnapshotOfTimer(t *testing.T) {
	img := openTiny(t)
	s := start(t, img, sandbox.Limits{})
	next := func(s *talk) (at time.Time) {
		if err := s.parkedDo(t.Context(), func() error { at = s.next; return nil }); err != nil {
			t.Fatal(err)
		}
		return at
	}
	s.say("h")
	until(t, "the session waits for a time", func() bool { return !next(s).IsZero() })
	var data bytes.Buffer
	if err := s.Snapshot(t.Context(), &data, false); err != nil {
		t.Fatal(err)
	}
	r := restore(t, img, data.Bytes())
	if left := time.Until(next(r)); left > time.Hour || left < 59*time.Minute {
		t.Errorf("the program is to be called in %v, want an hour", left)
	}
	r.say("h")
	r.hear("T")
}

// TestBusySnapshot: a session that computes cannot be saved, and goes on.
func TestBusySnapshot(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("l")
	until(t, "the session computes", func() bool { return s.Usage().CPU > 20*time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var data bytes.Buffer
	if err := s.Snapshot(ctx, &data, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	s.interrupted("i")
	s.say("c")
	s.hear("1")
	if data.Len() != 0 {
		t.Errorf("%d bytes were written after the caller had gone", data.Len())
	}
}
