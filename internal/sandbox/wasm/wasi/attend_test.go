//go:build linux

package wasi

import (
	"errors"
	"testing"
)

// An attender counts calls, and answers them.
type attender struct {
	waiter
	calls       int
	interrupted bool
	panics      any
}

func (a *attender) Attend() bool {
	a.calls++
	if a.panics != nil {
		panic(a.panics)
	}
	return a.interrupted
}

// TestAttend: the owner has a say before each function.
func TestAttend(t *testing.T) {
	instances := instantiate(t)
	for _, f := range functions() {
		a := &attender{panics: errors.New("the session is to end")}
		i := instances(t, Config{Stdin: -1, Stdout: -1, Stderr: -1, Waiter: a})
		_, err := i.mod.ExportedFunction(f.name).Call(i.ctx, make([]uint64, len(f.params))...)
		if !errors.Is(err, a.panics.(error)) || a.calls != 1 {
			t.Errorf("%s: got %v after %d calls of Attend, want %v after 1", f.name, err, a.calls, a.panics)
		}
	}
}

// TestAttendInterrupts: what would wait after an interrupt does not, and what would not
// goes on.
func TestAttendInterrupts(t *testing.T) {
	cfg, _, _ := streams(t)
	a := &attender{interrupted: true}
	cfg.Waiter = a
	i := newInstance(t, cfg)
	if got, errno := i.read(0, 1); errno != errInterrupted {
		t.Errorf("a read of nothing: got %q, %v, want %v", got, errno, errInterrupted)
	}
	if _, errno := i.poll(sub{eventClock, clockMonotonic, 1 << 62, 0}); errno != errInterrupted {
		t.Errorf("a sleep: got %v, want %v", errno, errInterrupted)
	}
	if n, errno := i.write(1, "x"); n != 1 || errno != success {
		t.Errorf("a write for which there is room: got %d, %v, want 1, success", n, errno)
	}
	if len(a.waiter.calls) > 0 {
		t.Errorf("waits: %v, want none", a.waiter.calls)
	}
}
