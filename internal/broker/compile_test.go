//go:build unix

package broker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// preparingEngine is an engine that prepares before its first start.
type preparingEngine struct {
	*engine
	begun    chan struct{}
	end      chan error
	prepared atomic.Bool
}

func (s *preparingEngine) Prepared(*sandbox.Program) bool { return s.prepared.Load() }

func (s *preparingEngine) Prepare(ctx context.Context, _ *sandbox.Program) error {
	s.begun <- struct{}{}
	select {
	case err := <-s.end:
		s.prepared.Store(err == nil)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A call waits for the engine's preparation, says so, and may give up; its own time does
// not run. A preparation that fails is tried again.
func TestPreparation(t *testing.T) {
	t.Parallel()
	s := &preparingEngine{begun: make(chan struct{}, 8), end: make(chan error)}
	b, _ := newBroker(t, func(p *parts) {
		s.engine = p.Template.Engine.(*engine)
		p.Template.Engine = s
	})
	submit := func(session string) (*Activity, chan *Result, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		activity, done := &Activity{}, make(chan *Result, 1)
		run := b.Submit(Request{Principal: user, Session: session, Activity: activity, Submission: Submission{Code: "print('ran')"}})
		go func() { done <- run(ctx) }()
		<-s.begun
		return activity, done, cancel
	}
	activity, first, _ := submit("first")
	if got := activity.String(); got != Compiling {
		t.Errorf("while the engine prepares: got %q, want %q", got, Compiling)
	}
	_, left, leave := submit("left")
	leave()
	if r := <-left; r.Error != "Cancelled before the code ran" {
		t.Errorf("a call that gave up: got %+v", r)
	}
	if n := s.starts.Load(); n != 0 {
		t.Errorf("while the engine prepares: got %d starts, want none", n)
	}
	s.end <- errors.New("it was killed")
	want(t, <-first, Success, 0, "ran") // the start does what the preparation could not
	_, second, _ := submit("second")
	s.end <- nil
	want(t, <-second, Success, 0, "ran")
	want(t, in(t, b, "second", "", "print('ran')"), Success, 0, "ran") // no one prepares
	want(t, in(t, b, "third", "", "print('ran')"), Success, 0, "ran")
}
