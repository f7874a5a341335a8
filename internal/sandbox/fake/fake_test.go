//go:build unix

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hostPython(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no python3")
	return ""
}

func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite of engines takes minutes")
	}
	if err := ownRootWorks(t); err != nil {
		sandboxtest.Skip(t, "fake", "no root of its own for a process here: "+err.Error())
	}
	t.Run("fake", func(t *testing.T) {
		python := hostPython(t)
		sandboxtest.Run(t, sandboxtest.Config{
			Engine:     "fake",
			New:        func(t testing.TB) sandbox.Engine { return New(Options{Interpreter: python, OwnRoot: true}) },
			HostPython: python,
		})
	})
}

// ownRootWorks tries whether a process can have a root of its own here.
func ownRootWorks(t *testing.T) error {
	b := New(Options{Interpreter: hostPython(t), OwnRoot: true})
	defer b.Close()
	run, err := b.Start(t.Context(), &sandbox.Spec{ID: "try", Program: python.Program()})
	if err != nil {
		return err
	}
	ch := run.(*Run).Channel()
	c := guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, guest.Options{})
	defer c.Close()
	_, err = c.Ready(t.Context())
	return err
}

// TestFolders: with a root of its own, a run has folders at their places.
func TestFolders(t *testing.T) {
	if err := ownRootWorks(t); err != nil {
		sandboxtest.Skip(t, "fake", "no root of its own for a process here: "+err.Error())
	}
	spec := sandbox.Spec{ID: "folders", Program: python.Program()}
	for _, mode := range []sandbox.MountMode{sandbox.ReadOnly, sandbox.ReadWrite, sandbox.Copy} {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: t.TempDir(), Target: "/mnt/" + string(mode), Mode: mode})
	}
	b := New(Options{Interpreter: hostPython(t), OwnRoot: true})
	defer b.Close()
	run, err := b.Start(t.Context(), &spec)
	if err != nil {
		t.Fatal(err)
	}
	ch := run.(*Run).Channel()
	c := guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, guest.Options{})
	defer c.Close()
	h := &collector{}
	x, err := c.Start(wire.Exec{Code: `
for mode in ("ro", "rw", "copy"):
    try:
        open("/mnt/" + mode + "/new", "w").close()
        print(mode, "written")
    except OSError as e:
        print(mode, e.strerror)
`}, h)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Result(); err != nil {
		t.Fatal(err)
	}
	if got, want := h.text(), "ro Read-only file system\nrw written\ncopy written\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, m := range spec.Mounts {
		_, err := os.Stat(m.Source + "/new")
		if got, want := err == nil, m.Mode == sandbox.ReadWrite; got != want {
			t.Errorf("%s: on the host: got %v, want %v", m.Mode, got, want)
		}
	}
}

// conversation starts a run with faults and opens its channel.
func conversation(t *testing.T, f Faults) (*Run, *guest.Conn) {
	t.Helper()
	b := New(Options{Interpreter: hostPython(t), Faults: func(*sandbox.Spec) Faults { return f }})
	run, err := b.Start(t.Context(), &sandbox.Spec{ID: "faulty", Program: python.Program()})
	if err != nil {
		t.Fatal(err)
	}
	r := run.(*Run)
	ch := r.Channel()
	c := guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, guest.Options{})
	t.Cleanup(func() {
		_ = c.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, c
}

type collector struct {
	mu  sync.Mutex
	out strings.Builder
}

func (c *collector) Output(_ wire.Stream, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Write(b)
}

func (*collector) Call(context.Context, wire.Call) (json.RawMessage, error) {
	return json.RawMessage(`[]`), nil
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// isDone says whether a control frame is a done frame.
func isDone(frame []byte) bool { return strings.Contains(string(frame[4:]), `{"type":"done"`) }

func TestFaults(t *testing.T) {
	died := func(err error) bool { var d *guest.Died; return errors.As(err, &d) }
	protocol := func(err error) bool { return errors.Is(err, guest.ErrProtocol) }
	onDone := func(f func(frame []byte, r *Run) []byte) Faults {
		return Faults{Control: func(_ int, frame []byte, r *Run) []byte {
			if isDone(frame) {
				return f(frame, r)
			}
			return frame
		}}
	}
	tests := []struct {
		name   string
		faults Faults
		want   func(error) bool
	}{
		{"dies instead of answering", onDone(func(_ []byte, r *Run) []byte { r.Kill(); return nil }), died},
		{"truncated", onDone(func(frame []byte, r *Run) []byte { r.Kill(); return frame[:len(frame)-1] }), died},
		{"oversized", onDone(func([]byte, *Run) []byte { return []byte{0xff, 0xff, 0xff, 0xff} }), protocol},
		{"garbage", onDone(func([]byte, *Run) []byte { return wire.AppendControl(nil, []byte("{]")) }), protocol},
		{"output garbage", Faults{Output: func(n int, frame []byte, _ *Run) []byte {
			if n == 1 {
				return []byte{0, 0, 0, 0}
			}
			return frame
		}}, protocol},
		{"late", onDone(func(frame []byte, _ *Run) []byte { time.Sleep(100 * time.Millisecond); return frame }), nil},
		{"twice", onDone(func(frame []byte, _ *Run) []byte { return append(frame, frame...) }), nil},
		{"forged before", onDone(func(frame []byte, _ *Run) []byte {
			return append(wire.AppendControl(nil, []byte(`{"type":"done","id":77,"status":"exit","exitCode":9}`)), frame...)
		}), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, c := conversation(t, tt.faults)
			h := &collector{}
			x, err := c.Start(wire.Exec{Code: "import sys\nprint('x')\nprint('y', file=sys.stderr)"}, h)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-x.Done():
			case <-time.After(time.Minute):
				t.Fatal("no end")
			}
			o, err := x.Result()
			if tt.want == nil {
				if err != nil || o.Status != wire.StatusOK || o.ExitCode != 0 || !strings.Contains(h.text(), "x\n") {
					t.Errorf("%+v, %v, %q", o, err, h.text())
				}
			} else if !tt.want(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestRefusesToStart(t *testing.T) {
	reason := errors.New("no room")
	b := New(Options{Faults: func(*sandbox.Spec) Faults { return Faults{Start: reason} }})
	defer b.Close()
	_, err := b.Start(t.Context(), &sandbox.Spec{ID: "x", Program: python.Program()})
	if !errors.Is(err, sandbox.ErrStart) || !errors.Is(err, reason) {
		t.Error(err)
	}
}

func TestNoPython(t *testing.T) {
	b := New(Options{Interpreter: "/nonexistent/python3"})
	defer b.Close()
	r, err := b.Probe(t.Context())
	if err != nil || r.Usable || !r.Findings[1].Fatal {
		t.Error(r, err)
	}
	if _, err := b.Start(t.Context(), &sandbox.Spec{ID: "x", Program: python.Program()}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Error(err)
	}
}

func TestFilesAndUsage(t *testing.T) {
	r, c := conversation(t, Faults{})
	ctx := t.Context()
	if _, err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Put(ctx, "d/in.txt", strings.NewReader("content"), 7); err != nil {
		t.Fatal(err)
	}
	if err := r.Put(ctx, "../out", strings.NewReader("x"), 1); err == nil {
		t.Error("a file was put beside the workspace")
	}
	if err := r.Put(ctx, "short", strings.NewReader("x"), 2); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	x, err := c.Start(wire.Exec{Code: "open('back', 'w').write(open('d/in.txt').read().upper())\nsum(range(10_000_000));"}, &collector{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Result(); err != nil {
		t.Fatal(err)
	}
	f, err := r.Get(ctx, "back")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "CONTENT" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := r.Get(ctx, "d"); err == nil {
		t.Error("a directory was read as a file")
	}
	u, err := r.Usage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" && (u.CPU <= 0 || u.MemoryBytes < 1<<20 || u.PeakBytes < u.MemoryBytes) {
		t.Errorf("%+v", u)
	}
}

func TestPause(t *testing.T) {
	r, c := conversation(t, Faults{})
	if _, err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	x, err := c.Start(wire.Exec{Code: "1"}, &collector{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.Done():
		t.Error("it ran while paused")
	case <-time.After(100 * time.Millisecond):
	}
	if err := r.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Result(); err != nil {
		t.Error(err)
	}
}
