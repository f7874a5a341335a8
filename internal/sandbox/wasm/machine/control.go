//go:build linux

package machine

import (
	"context"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Interrupt is SIGINT for the program: Python code that runs gets a KeyboardInterrupt.
// A session that waits for a frame has nothing to interrupt.
func (s *Session) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != parked {
		s.post(interruptedEvent)
	}
}

// Kill ends the session. It does not wait for the end.
func (s *Session) Kill(reason sandbox.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events.Load()&killedEvent != 0 {
		return
	}
	s.killed = sandbox.Exit{Code: 128 + 9, Reason: reason}
	s.post(killedEvent)
}

// Pause stops the session, and returns when it has stopped. A session that has ended
// counts as stopped. After an error the session goes on, unless it was paused before.
func (s *Session) Pause(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.post(pausedEvent)
	s.pausing++
	err := s.await(ctx, func() bool { return s.state == held || s.state == over })
	s.pausing--
	switch {
	case err == nil:
		s.paused = true
	case !s.paused && s.pausing == 0:
		s.clear(pausedEvent)
		s.changed.Broadcast()
	}
	return err
}

// Resume lets a paused session go on.
func (s *Session) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	s.clear(pausedEvent)
	s.changed.Broadcast()
}

// post tells the session's goroutine about an event. The caller holds s.mu.
func (s *Session) post(event uint32) {
	if s.state == over {
		return
	}
	s.events.Or(event)
	s.changed.Broadcast()
	s.wake.ring()
}

// await waits until a condition holds or ctx is done. The caller holds s.mu, under which
// what the condition depends on changes.
func (s *Session) await(ctx context.Context, holds func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	for !holds() {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.changed.Wait()
	}
	return nil
}

// parkedDo has the session's goroutine call f while the session is parked, also if it
// is paused then. It waits until it is, or ctx is done.
func (s *Session) parkedDo(ctx context.Context, f func() error) error {
	var err error
	const (
		queued = iota
		begun
		finished
	)
	stage := queued
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == over {
		return errEnded
	}
	s.work = append(s.work, func() {
		if stage != queued {
			return
		}
		stage = begun
		s.mu.Unlock()
		err = f()
		s.mu.Lock()
		stage = finished
	})
	s.post(workEvent)
	wait := s.await(ctx, func() bool { return stage != queued || s.state == over })
	if stage == queued {
		stage = finished // no caller wants it any more
		if wait == nil {
			wait = errEnded
		}
		return wait
	}
	for stage != finished {
		s.changed.Wait()
	}
	return err
}

// park waits until the program is to be called again, and does meanwhile what others
// want. It says how the session has ended, if it has.
func (s *Session) park() (exit sandbox.Exit, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.become(parked)
	defer func() {
		if s.state != over {
			s.become(running)
		}
	}()
	for {
		s.clear(interruptedEvent)
		events := s.events.Load()
		switch {
		case events&killedEvent != 0:
			return s.killed, true
		case events&workEvent != 0:
			work := s.work
			s.work = nil
			s.clear(workEvent)
			for _, f := range work {
				f()
				s.changed.Broadcast()
			}
		case events&pausedEvent != 0:
			s.become(held)
			s.changed.Wait()
			s.become(parked)
		default:
			s.mu.Unlock()
			due := s.wake.park(s.next, s.forget)
			s.mu.Lock()
			if due && s.events.Load()&^interruptedEvent == 0 {
				return exit, false
			}
		}
	}
}

// forget frees what a session keeps to be called again soon.
func (s *Session) forget() { s.run = nil }
