//go:build linux

package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

func (s *suite) lifecycle(t *testing.T) {
	t.Run("exec", func(t *testing.T) {
		sess := s.start(t, s.backend(t), s.spec())
		if got := sess.must(t, "print(1 + 1)"); got != "2\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("handle", s.handle)
	t.Run("destroy", s.destroy)
	t.Run("wait", s.wait)
	t.Run("exit", s.guestEnds)
	t.Run("gone", s.gone)
	t.Run("start cancelled", s.startCancelled)
	t.Run("loopback", s.loopback)
	t.Run("two at once", s.twoAtOnce)
	t.Run("same ID", s.sameID)
	t.Run("many programs", s.manyPrograms)
	t.Run("bad specs", s.badSpecs)
	t.Run("attach", s.attach)
	t.Run("close", s.closeDestroys)
}

func (s *suite) handle(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	sess := s.start(t, b, spec)
	h := sess.run.Handle()
	if h.Backend != b.Name() || h.ID != spec.ID || h.Version == 0 {
		t.Errorf("handle %+v of run %q on %q", h, spec.ID, b.Name())
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var back sandbox.Handle
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(back); string(again) != string(text) {
		t.Errorf("%s comes back as %s", text, again)
	}
	sess.destroy(t)
	if later := sess.run.Handle(); !reflect.DeepEqual(later, h) {
		t.Errorf("the handle changed from %+v to %+v", h, later)
	}
}

func (s *suite) destroy(t *testing.T) {
	b := s.backend(t)
	t.Run("concurrent", func(t *testing.T) {
		sess := s.start(t, b, s.spec())
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = sess.run.Destroy(context.Background()) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if err := sess.run.Destroy(context.Background()); err != nil {
			t.Errorf("once more: %v", err)
		}
		if e := sess.exit(t); e.Reason != sandbox.Destroyed {
			t.Errorf("exit %+v", e)
		}
	})
	t.Run("cancelled context", func(t *testing.T) {
		sess := s.start(t, b, s.spec())
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := sess.run.Destroy(ctx); err != nil {
			t.Errorf("Destroy: %v", err)
		}
		if e := sess.exit(t); e.Reason != sandbox.Destroyed {
			t.Errorf("exit %+v", e)
		}
	})
	t.Run("busy", func(t *testing.T) {
		sess := s.start(t, b, s.spec())
		e := sess.begin(t, "print('go', flush=True)\nwhile True: pass")
		e.saw(t, "go", execTimeout)
		if err := sess.run.Destroy(context.Background()); err != nil {
			t.Errorf("Destroy: %v", err)
		}
		if r := e.wait(t, settleTime); r.Err == nil {
			t.Errorf("the execution ended as %s", r.Status)
		}
	})
}

func (s *suite) wait(t *testing.T) {
	sess := s.start(t, s.backend(t), s.spec())
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := sess.run.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait on a live run: %v", err)
	}
	type answer struct {
		exit sandbox.Exit
		err  error
	}
	before := make(chan answer, 3)
	for range cap(before) {
		go func() {
			e, err := sess.run.Wait(context.Background())
			before <- answer{e, err}
		}()
	}
	time.Sleep(10 * time.Millisecond)
	sess.destroy(t)
	after, err := sess.run.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for range cap(before) {
		if a := <-before; a.err != nil || a.exit != after {
			t.Errorf("one waiter got %+v, %v; another %+v", a.exit, a.err, after)
		}
	}
	done, cancelDone := context.WithCancel(context.Background())
	cancelDone()
	if e, err := sess.run.Wait(done); err != nil || e != after {
		t.Errorf("Wait after the end under a cancelled context: %+v, %v", e, err)
	}
}

// guestEnds tests that a run can also end by itself.
func (s *suite) guestEnds(t *testing.T) {
	b := s.backend(t)
	t.Run("closed input", func(t *testing.T) {
		sess := s.start(t, b, s.spec())
		ch, _ := sandbox.As[sandbox.Duplexer](sess.run)
		_ = ch.Channel().Stdin.Close()
		if e := sess.exit(t); e.Reason != sandbox.Exited || e.Code != 0 {
			t.Errorf("exit %+v", e)
		}
	})
	t.Run("os._exit", func(t *testing.T) {
		sess := s.start(t, b, s.spec())
		if r := sess.exec(t, "import os; print('last words', flush=True); os._exit(7)"); r.Err == nil || r.Stdout != "last words\n" {
			t.Errorf("%+v", r)
		}
		if e := sess.exit(t); e.Reason != sandbox.Exited {
			t.Errorf("exit %+v", e)
		}
	})
	for _, test := range []struct {
		code   string
		signal int
	}{
		{"import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 9},
		{"import signal; signal.raise_signal(signal.SIGKILL)", 9},
		{"import os; os.abort()", 6},
	} {
		t.Run("killed", func(t *testing.T) {
			sess := s.start(t, b, s.spec())
			r := sess.exec(t, test.code)
			if d, ok := errors.AsType[*guest.Died](r.Err); !ok || d.Signal != test.signal {
				t.Errorf("%s: got %+v, want the end by signal %d", test.code, r, test.signal)
			}
			if e := sess.exit(t); e.Reason != sandbox.Exited {
				t.Errorf("%s: got the exit %+v, want %s", test.code, e, sandbox.Exited)
			}
		})
	}
}

// gone tests that every method still returns after the end.
func (s *suite) gone(t *testing.T) {
	sess := s.start(t, s.backend(t), s.spec())
	sess.destroy(t)
	ctx, cancel := context.WithTimeout(t.Context(), settleTime)
	defer cancel()
	check := func(what string, err error) {
		t.Helper()
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s on a run that is gone: %v", what, err)
		} else if !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s on a run that is gone is not ErrGone: %v", what, err)
		}
	}
	if i, ok := sandbox.As[sandbox.Interrupter](sess.run); ok {
		check("Interrupt", i.Interrupt(ctx))
	}
	if p, ok := sandbox.As[sandbox.Pauser](sess.run); ok {
		check("Pause", p.Pause(ctx))
		check("Resume", p.Resume(ctx))
	}
	if f, ok := sandbox.As[sandbox.FileTransferer](sess.run); ok {
		check("Put", f.Put(ctx, "x", strings.NewReader("x"), 1))
	}
}

// startCancelled tests that a cancelled start leaves nothing.
func (s *suite) startCancelled(t *testing.T) {
	b := s.backend(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if run, err := b.Start(ctx, s.spec()); err == nil {
		t.Error("a start under a cancelled context succeeded")
		_ = run.Destroy(context.Background())
	}
	began := time.Now()
	s.start(t, b, s.spec()).destroy(t)
	usual := time.Since(began)
	for i := range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(mathrand.Int64N(int64(usual)+1)))
		run, err := b.Start(ctx, s.spec())
		cancel()
		switch {
		case err == nil: // it was quicker; the context must not affect the run
			if e, err := run.Wait(expired()); err == nil {
				t.Errorf("start %d: the run ended with its start's context: %+v", i, e)
			}
			if err := run.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
		case !isKind(err, sandbox.ErrStart, context.DeadlineExceeded):
			t.Errorf("start %d: %v", i, err)
		}
	}
	s.start(t, b, s.spec()).usable(t, "a sandbox after starts that were given up")
}

// expired returns a context that is about to expire.
func expired() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	_ = cancel // it ends by itself
	return ctx
}

func (s *suite) twoAtOnce(t *testing.T) {
	b := s.backend(t)
	one, two := s.start(t, b, s.spec()), s.start(t, b, s.spec())
	one.must(t, "x = 'one'; open('/workspace/f', 'w').write(x); open('/tmp/f', 'w').write(x)")
	two.must(t, "x = 'two'; open('/workspace/f', 'w').write(x)")
	const read = "import os; print(x, open('/workspace/f').read(), os.path.exists('/tmp/f'))"
	if got := one.must(t, read); got != "one one True\n" {
		t.Errorf("the first has %q", got)
	}
	if s.report.Isolation >= sandbox.ContainerIsolation {
		if got := two.must(t, read); got != "two two False\n" {
			t.Errorf("the second has %q", got)
		}
	}
	e := one.begin(t, "import time\nprint('go', flush=True)\ntime.sleep(30)")
	e.saw(t, "go", execTimeout)
	two.usable(t, "a sandbox next to a busy one")
	one.destroy(t)
	two.usable(t, "a sandbox next to a destroyed one")
}

func (s *suite) sameID(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	sess := s.start(t, b, spec)
	if run, err := b.Start(t.Context(), spec); err == nil {
		t.Error("a second run with the same ID started")
		_ = run.Destroy(context.Background())
	}
	sess.usable(t, "the first run of that ID")
	sess.destroy(t)
	s.start(t, b, spec).usable(t, "a run with the ID of one that is gone")
}

// manyPrograms tests backends that share their directories, like the processes
// of several clients, and that start and end at the same time.
func (s *suite) manyPrograms(t *testing.T) {
	const programs, rounds = 4, 4
	var wg sync.WaitGroup
	errs := make([]error, programs)
	for p := range programs {
		wg.Go(func() {
			for range rounds {
				if err := s.briefly(t); err != nil {
					errs[p] = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// briefly makes a backend, runs one sandbox on it and closes it.
func (s *suite) briefly(t *testing.T) (err error) {
	b := s.cfg.New(t)
	defer func() { err = errors.Join(err, b.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	run, err := b.Start(ctx, s.spec())
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return run.Destroy(ctx)
}

func (s *suite) badSpecs(t *testing.T) {
	b := s.backend(t)
	long := strings.Repeat("a", 64)
	for _, tt := range []struct {
		name  string
		spoil func(*sandbox.Spec)
		kind  error
	}{
		{"no ID", func(p *sandbox.Spec) { p.ID = "" }, sandbox.ErrInvalidSpec},
		{"ID too long", func(p *sandbox.Spec) { p.ID = long }, sandbox.ErrInvalidSpec},
		{"ID with a path", func(p *sandbox.Spec) { p.ID = "../x" }, sandbox.ErrInvalidSpec},
		{"ID with capitals", func(p *sandbox.Spec) { p.ID = "Abc" }, sandbox.ErrInvalidSpec},
		{"ID with a newline", func(p *sandbox.Spec) { p.ID = "abc\n" }, sandbox.ErrInvalidSpec},
		{"two roots", func(p *sandbox.Spec) { p.Root = sandbox.Root{Interpreter: "/usr/bin/python3", Image: "x"} }, sandbox.ErrInvalidSpec},
		{"relative interpreter", func(p *sandbox.Spec) { p.Root = sandbox.Root{Interpreter: "python3"} }, sandbox.ErrInvalidSpec},
		{"unknown image", func(p *sandbox.Spec) { p.Root = sandbox.Root{Image: "sallyport.invalid/no/such:image"} }, sandbox.ErrUnsupported},
		{"relative archive", func(p *sandbox.Spec) { p.Root.Packages = strings.Repeat("0", 64) + sandbox.PackagesExt }, sandbox.ErrInvalidSpec},
		{"unknown archive", func(p *sandbox.Spec) { p.Root.Packages = "/nowhere/" + strings.Repeat("0", 64) + sandbox.PackagesExt }, sandbox.ErrUnsupported},
		{"the internet", func(p *sandbox.Spec) { p.Network.Internet = true }, sandbox.ErrUnsupported},
		{"negative memory", func(p *sandbox.Spec) { p.Limits.MemoryBytes = -1 }, sandbox.ErrInvalidSpec},
		{"negative processes", func(p *sandbox.Spec) { p.Limits.Processes = -1 }, sandbox.ErrInvalidSpec},
		{"negative processors", func(p *sandbox.Spec) { p.Limits.CPUs = -1 }, sandbox.ErrInvalidSpec},
		{"variable with =", func(p *sandbox.Spec) { p.Env = map[string]string{"A=B": "c"} }, sandbox.ErrInvalidSpec},
		{"variable with NUL", func(p *sandbox.Spec) { p.Env = map[string]string{"A": "b\x00C=d"} }, sandbox.ErrInvalidSpec},
		{"file above", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "../escape"}} }, sandbox.ErrInvalidSpec},
		{"file above, hidden", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "a/../../escape"}} }, sandbox.ErrInvalidSpec},
		{"absolute file", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "/etc/escape"}} }, sandbox.ErrInvalidSpec},
		{"file that is a directory", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "."}} }, sandbox.ErrInvalidSpec},
		{"file without a name", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: ""}} }, sandbox.ErrInvalidSpec},
		{"file with NUL", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "a\x00b"}} }, sandbox.ErrInvalidSpec},
		{"file not clean", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "a//b"}} }, sandbox.ErrInvalidSpec},
		{"file twice", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "a"}, {Path: "a"}} }, sandbox.ErrInvalidSpec},
		{"file below a file", func(p *sandbox.Spec) { p.Files = []sandbox.File{{Path: "a"}, {Path: "a/b"}} }, sandbox.ErrInvalidSpec},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := s.spec()
			tt.spoil(spec)
			ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
			defer cancel()
			run, err := b.Start(ctx, spec)
			if err == nil {
				_ = run.Destroy(context.Background())
				t.Fatal("it started")
			}
			if !errors.Is(err, tt.kind) {
				t.Errorf("not %q: %v", tt.kind, err)
			}
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Backend != b.Name() {
				t.Errorf("not a *sandbox.Error of %q: %v", b.Name(), err)
			}
		})
	}
	if _, err := b.Start(t.Context(), nil); !errors.Is(err, sandbox.ErrInvalidSpec) {
		t.Errorf("no spec at all: %v", err)
	}
	s.start(t, b, s.spec()).usable(t, "a good spec after bad ones")
}

func (s *suite) attach(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	sess := s.start(t, b, spec)
	gone := sess.run.Handle()
	sess.destroy(t)
	for _, tt := range []struct {
		name string
		h    sandbox.Handle
	}{
		{"ended", gone},
		{"another engine's", sandbox.Handle{Backend: "no-such-engine", Version: 1, ID: spec.ID}},
		{"empty", sandbox.Handle{}},
		{"unknown", sandbox.Handle{Backend: b.Name(), Version: gone.Version, ID: "suite-no-such-run"}},
		{"future version", sandbox.Handle{Backend: b.Name(), Version: 1 << 20, ID: spec.ID, Data: gone.Data}},
		{"path as ID", sandbox.Handle{Backend: b.Name(), Version: gone.Version, ID: "../../../../etc"}},
		{"garbage", sandbox.Handle{Backend: b.Name(), Version: gone.Version, ID: spec.ID, Data: json.RawMessage(`{"pid":1,"cgroups":["/"],"dir":"/etc"}`)}},
		{"not JSON", sandbox.Handle{Backend: b.Name(), Version: gone.Version, ID: spec.ID, Data: json.RawMessage("\x00{{{")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), settleTime)
			defer cancel()
			run, err := b.Attach(ctx, tt.h)
			if err == nil {
				_ = run.Destroy(context.Background())
				t.Fatal("it attached")
			}
			if !isKind(err, sandbox.ErrGone, sandbox.ErrInvalidSpec, sandbox.ErrUnsupported) {
				t.Errorf("neither gone, invalid nor unsupported: %v", err)
			}
		})
	}
	s.start(t, b, s.spec()).usable(t, "a sandbox after bad handles")
}

func (s *suite) closeDestroys(t *testing.T) {
	b := s.cfg.New(t)
	one, two := s.start(t, b, s.spec()), s.start(t, b, s.spec())
	e := two.begin(t, "print('go', flush=True)\nwhile True: pass")
	e.saw(t, "go", execTimeout)
	if err := b.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, sess := range []*session{one, two} {
		if e := sess.exit(t); e.Reason != sandbox.Destroyed {
			t.Errorf("exit %+v", e)
		}
	}
	if r := e.wait(t, settleTime); r.Err == nil && r.Status == wire.StatusOK {
		t.Errorf("the execution ended as %s", r.Status)
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close once more: %v", err)
	}
}
