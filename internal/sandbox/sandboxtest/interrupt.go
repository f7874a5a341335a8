//go:build linux

package sandboxtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// outputFlood tests that endless output costs the host no memory and ends when
// the code is interrupted.
func (s *suite) outputFlood(t *testing.T, sess *session) {
	i, ok := sandbox.As[sandbox.Interrupter](sess.run)
	if !ok {
		Skip(t, s.cfg.Engine+".limits.interrupt", "the engine cannot interrupt")
	}
	before := heap()
	e := sess.begin(t, "import os\nwhile True: os.write(1, b'flood ' * 10000)")
	e.h.setLimit(1 << 20)
	e.saw(t, "flood", execTimeout)
	var worst int64
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		worst = max(worst, heap()-before)
	}
	if err := i.Interrupt(t.Context()); err != nil {
		t.Errorf("Interrupt: %v", err)
	}
	r := e.wait(t, settleTime)
	if r.Status != wire.StatusInterrupted || !r.Truncated {
		t.Errorf("%s %v, truncated %v", r.Status, r.Err, r.Truncated)
	}
	if worst > 64<<20 {
		t.Errorf("the host's heap grew by %d MB", worst>>20)
	}
	sess.usable(t, "the session after a flood")
}

// interrupt returns a test that a real SIGINT ends code and nothing else.
func (s *suite) interrupt(code string) func(*testing.T, *session) {
	return func(t *testing.T, sess *session) {
		if strings.Contains(code, "subprocess") {
			s.needProcesses(t)
		}
		i, ok := sandbox.As[sandbox.Interrupter](sess.run)
		if !ok {
			Skip(t, s.cfg.Engine+".limits.interrupt", "the engine cannot interrupt")
		}
		for range 2 {
			e := sess.begin(t, "kept = 42\nprint('go', flush=True)\n"+code)
			e.saw(t, "go", execTimeout)
			time.Sleep(50 * time.Millisecond)
			if err := i.Interrupt(t.Context()); err != nil {
				t.Fatalf("Interrupt: %v", err)
			}
			if r := e.wait(t, settleTime); r.Err != nil || r.Status != wire.StatusInterrupted {
				t.Fatalf("%s, %v\n%s", r.Status, r.Err, r.Stderr)
			}
			if got := sess.must(t, "print(kept)"); got != "42\n" {
				t.Errorf("after the interrupt: %q", got)
			}
		}
		// If nothing is running it must not disturb the next execution.
		if err := i.Interrupt(t.Context()); err != nil {
			t.Errorf("Interrupt between executions: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
		sess.usable(t, "the session after an interrupt between executions")
	}
}

// interruptAtOnce tests that an interrupt ends an execution at any moment,
// including while the guest's own code runs. Only an interrupt that arrives
// before the guest has begun may have no effect.
func (s *suite) interruptAtOnce(t *testing.T, sess *session) {
	i, ok := sandbox.As[sandbox.Interrupter](sess.run)
	if !ok {
		Skip(t, s.cfg.Engine+".limits.interrupt", "the engine cannot interrupt")
	}
	lost := 0
	for n := range 40 {
		code := "import time\nprint('go', flush=True)\ntime.sleep(600)"
		if n%2 == 1 && !s.report.Single {
			code = "import subprocess\nprint('go', flush=True)\nsubprocess.run(['sleep', '600'])"
		}
		e := sess.begin(t, code)
		e.saw(t, "go", execTimeout)
		time.Sleep(time.Duration(n%8) * 500 * time.Microsecond)
		for try := 0; ; try++ {
			if err := i.Interrupt(t.Context()); err != nil {
				t.Fatalf("Interrupt: %v", err)
			}
			select {
			case <-e.x.Done():
			case <-time.After(3 * time.Second):
				if try < 3 {
					lost++
					t.Logf("execution %d, interrupt %d had no effect: %q %q", n, try, e.h.result().Stdout, e.h.result().Stderr)
					continue
				}
			}
			break
		}
		if r := e.wait(t, settleTime); r.Err != nil || r.Status != wire.StatusInterrupted {
			t.Fatalf("execution %d: %s, %v\n%s", n, r.Status, r.Err, r.Stderr)
		}
	}
	if lost > 1 {
		t.Errorf("%d interrupts of 40 had no effect", lost)
	}
	sess.usable(t, "the session after many interrupts")
}

// ignoredInterrupt tests that code that does not stop is destroyed within a
// bound.
func (s *suite) ignoredInterrupt(t *testing.T, sess *session) {
	e := sess.begin(t, `
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("go", flush=True)
while True:
    try:
        while True:
            time.sleep(0.01)
    except BaseException:
        print("swallowed", flush=True)
`)
	e.saw(t, "go", execTimeout)
	if i, ok := sandbox.As[sandbox.Interrupter](sess.run); ok {
		if err := i.Interrupt(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.saw(t, "swallowed", settleTime)
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	if err := sess.run.Destroy(ctx); err != nil {
		t.Errorf("Destroy: %v", err)
	}
	if r := e.wait(t, settleTime); r.Err == nil {
		t.Errorf("the execution ended as %s", r.Status)
	}
	if x := sess.exit(t); x.Reason != sandbox.Destroyed {
		t.Errorf("exit %+v", x)
	}
}
