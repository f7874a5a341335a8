package wasi

import (
	"context"
	"time"
)

// A Waiter waits on behalf of an instance. Its owner implements it, so that the owner
// can interrupt, pause and end the instance while it waits.
type Waiter interface {
	// Wait blocks until the file descriptor fd of this process is ready, for writing if
	// write is set, or timeout has passed. A negative timeout never passes. With fd -1
	// it waits for the time alone. An interrupt that the instance may not have noticed ends
	// the next wait. If the instance is to end, Wait does not return: it
	// panics with the owner's own value, which host functions let pass.
	Wait(ctx context.Context, fd int, write bool, timeout time.Duration) Outcome
}

// An Attender is a [Waiter] that has a say before each host function but proc_exit, so
// that an instance which does nothing but call them can be interrupted, paused and ended,
// too.
type Attender interface {
	// Attend returns soon unless the instance is to be slowed or paused, and panics as
	// Wait does if it is to end.
	Attend()
}

// Outcome is why a wait is over.
type Outcome int

// The outcomes of a wait.
const (
	Ready       Outcome = iota // the descriptor is ready
	TimedOut                   // the time has passed
	Interrupted                // the instance has been interrupted: the call fails with EINTR
)
