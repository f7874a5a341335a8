package supervise

import (
	"context"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Ending is the end of a run, for any number of waiters. Make one with
// NewEnding.
type Ending struct {
	done chan struct{}
	exit sandbox.Exit
}

// NewEnding returns the ending of a run that has not ended.
func NewEnding() *Ending { return &Ending{done: make(chan struct{})} }

// Set records how the run ended. It must be called once.
func (e *Ending) Set(exit sandbox.Exit) {
	e.exit = exit
	close(e.done)
}

// Done returns a channel that Set closes.
func (e *Ending) Done() <-chan struct{} { return e.done }

// Wait implements sandbox.Run. An ending that is set wins over a ctx that is
// done.
func (e *Ending) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-e.done:
		return e.exit, nil
	default:
	}
	select {
	case <-e.done:
		return e.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}
