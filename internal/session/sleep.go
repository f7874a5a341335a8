package session

import (
	"context"
	"time"
)

// sleepTimeout bounds the time that a session takes to fall asleep.
const sleepTimeout = time.Minute

// deathTime is how long a sandbox that could not be saved may take to show that
// it did not survive that.
const deathTime = 200 * time.Millisecond

// Sleep lays the session down when its turn comes, if it is awake: its state
// goes to disk and its memory is freed. The next execution wakes it.
func (s *Session) Sleep(ctx context.Context) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	return s.layDown(ctx)
}

// sleepIf is Sleep for a session that nobody uses: it does nothing where
// somebody has come meanwhile.
func (s *Session) sleepIf(ctx context.Context, unusedSince time.Duration) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if s.queue.length() > 1 || time.Duration(s.used.Load()) > unusedSince {
		return nil
	}
	return s.layDown(ctx)
}

// layDown is Sleep in its turn. The turn's owner calls it.
func (s *Session) layDown(ctx context.Context) error {
	if s.box == nil {
		return nil
	}
	if s.nap == nil {
		return errNoSleep
	}
	began := time.Now()
	if s.box.dead() {
		s.drop(s.box.obituary())
		s.nap.leave(s.lost)
		return nil
	}
	if err := s.box.wake(ctx); err != nil {
		return err
	}
	s.nap.record.Executions = s.view.count()
	s.view.save(true)
	defer s.view.save(false)
	if err := s.nap.sleep(ctx, s.box); err != nil {
		if s.box.ends(deathTime) {
			s.drop("the session could not be saved: " + err.Error())
			s.nap.leave(s.lost)
		} else {
			s.box.idle(s.config.Background)
		}
		return err
	}
	s.box.destroy()
	s.box = nil
	s.awake.Store(false)
	s.view.closed(Asleep, "")
	s.book.flush() // while it is this process's
	s.nap.leave("")
	s.log.Debug("session asleep", "duration", time.Since(began), "bytes", s.nap.record.Bytes)
	return nil
}

// Reset ends the session's sandbox and forgets all that is kept of it. The next
// execution begins anew, and nothing is said to be lost.
func (s *Session) Reset(ctx context.Context) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if _, err := s.nap.claim(); err != nil {
		return err
	}
	if s.box != nil {
		s.box.destroy()
		s.box = nil
		s.awake.Store(false)
	}
	s.lost, s.told = "", false
	s.view.closed("", "")
	s.book.reset()
	s.book.flush()
	return s.nap.forget()
}

// dropIf ends the sandbox of a session that nobody uses.
func (s *Session) dropIf(ctx context.Context, reason string) error {
	t := s.queue.enter()
	defer s.queue.leave(t)
	if err := s.queue.wait(ctx, t); err != nil {
		return err
	}
	if s.queue.length() == 1 && s.box != nil {
		s.drop(reason)
	}
	return nil
}
