//go:build linux

package wasi

import (
	"errors"
	"testing"
)

// An attender counts calls, and panics.
type attender struct {
	waiter
	calls  int
	panics any
}

func (a *attender) Attend() {
	a.calls++
	panic(a.panics)
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
