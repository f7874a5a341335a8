package session

import (
	"context"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/session/places"
)

// suspendTimeout bounds the time in which a session is suspended.
const suspendTimeout = time.Minute

// deathTime is how long a sandbox that could not be saved may take to show that
// it did not survive the attempt.
const deathTime = 200 * time.Millisecond

// Suspend waits for its turn, writes the session's state to disk and frees its
// memory, if the session is running. The next execution resumes it.
func (s *Session) Suspend(ctx context.Context) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	return s.suspend(ctx)
}

// suspendIf is Suspend for a session that has not been used since then. It does
// nothing if the session is in use again.
func (s *Session) suspendIf(ctx context.Context, unusedSince time.Duration) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if s.queue.length() > 1 || time.Duration(s.used.Load()) > unusedSince {
		return nil
	}
	return s.suspend(ctx)
}

// suspend is Suspend for the holder of the turn.
func (s *Session) suspend(ctx context.Context) error {
	if s.instance == nil {
		return nil
	}
	if s.checkpoint == nil {
		return errNoSuspend
	}
	began := time.Now()
	if s.instance.dead() {
		s.drop(s.instance.deathReason())
		s.checkpoint.Leave(s.lost)
		return nil
	}
	if err := s.instance.unpause(ctx); err != nil {
		return err
	}
	s.checkpoint.Record.Executions = s.status.count()
	s.status.save(true)
	defer s.status.save(false)
	if err := s.save(ctx); err != nil {
		if s.instance.ends(deathTime) {
			s.drop("the session could not be saved: " + err.Error())
			s.checkpoint.Leave(s.lost)
		} else {
			s.instance.startIdle(s.config.Background)
		}
		return err
	}
	s.instance.destroy()
	s.instance = nil
	s.running.Store(false)
	s.status.closed(hibernate.Suspended, "")
	s.history.Flush() // while this process still holds it
	s.checkpoint.Leave("")
	s.changed(ctx, journal.SessionSuspended, "", began)
	s.log.Debug("session suspended", "duration", time.Since(began), "bytes", s.checkpoint.Record.Bytes)
	return nil
}

// Reset ends the session's sandbox and forgets everything kept for it. The next
// execution starts fresh and reports no loss.
func (s *Session) Reset(ctx context.Context) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if _, err := s.checkpoint.Claim(); err != nil {
		return err
	}
	if s.instance != nil {
		s.instance.destroy()
		s.instance = nil
		s.running.Store(false)
	}
	s.lost, s.notice, s.reported = "", "", false
	s.packages.forget()
	s.status.closed("", "")
	s.history.Reset()
	s.history.Flush()
	return s.checkpoint.Forget()
}

// aside calls do, as the holder of the turn, for a session that is not in use or whose
// next execution waits for its place. It does nothing if the session is in use.
func (s *Session) aside(do func() error) error {
	s.parking.Lock()
	defer s.parking.Unlock()
	if s.parked == nil {
		t := s.queue.enter()
		defer s.queue.leave(t)
		if s.queue.length() > 1 {
			return nil
		}
	}
	if s.instance == nil {
		return nil
	}
	return do()
}

// parkedAt returns the place that the session's next execution waits for, if it waits
// and the session is not being suspended.
func (s *Session) parkedAt() *places.Place {
	if !s.parking.TryLock() {
		return nil
	}
	defer s.parking.Unlock()
	return s.parked
}

// place waits for an execution's place. Meanwhile its session may be suspended.
func (s *Session) place(ctx context.Context, p *places.Place) error {
	if p == nil || p.Try() {
		return nil
	}
	s.park(p)
	defer s.park(nil)
	return p.Wait(ctx)
}

func (s *Session) park(p *places.Place) {
	s.parking.Lock()
	defer s.parking.Unlock()
	s.parked = p
}
