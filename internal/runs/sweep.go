package runs

import (
	"context"
	"errors"
	"time"

	"sallyport/internal/sandbox"
)

// strayAge is how old a run at a service must be before it is taken for one
// without a record: another Sallyport may just be starting it.
const strayAge = time.Hour

// Sweep deals with what programs that died have left: a run that nobody
// follows, and that was not meant to go on alone, is cancelled, where its
// service can do that, and waited for otherwise by whoever asks for it. Old
// runs are forgotten, and the end of new ones is told again. It does what it can, and logs.
func (s *Store) Sweep(ctx context.Context) {
	list, err := s.List()
	if err != nil {
		s.log.Warn("runs that were left", "error", err)
	}
	known := map[string]bool{}
	for _, r := range list {
		known[r.ID] = true
		switch {
		case ctx.Err() != nil:
			return
		case r.State == Ended && s.keep > 0 && time.Since(r.Ended) > s.keep:
			if err := s.Remove(r.ID); err == nil {
				s.log.Info("forgot an old run", "run", r.ID)
			}
		case r.State == Ended:
			s.tell(*r)
		case !r.Detached:
			s.adopt(ctx, r.ID)
		}
	}
	for name, engine := range s.engines {
		sweeper, ok := sandbox.As[sandbox.Sweeper](engine)
		if !ok {
			continue
		}
		gone, err := sweeper.Sweep(ctx, strayAge, func(id string) bool {
			// A record may have been written since.
			_, err := s.Get(id)
			return known[id] || !errors.Is(err, ErrUnknown)
		})
		if err != nil && ctx.Err() == nil {
			s.log.Warn("looking for runs without a record", "backend", name, "error", err)
		}
		for _, id := range gone {
			s.log.Info("ended a run without a record", "backend", name, "run", id)
		}
	}
}

// adopt ends a run whose follower has died.
func (s *Store) adopt(ctx context.Context, id string) {
	j, err := s.Attach(ctx, id)
	if errors.Is(err, ErrFollowed) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrOff) {
		return
	}
	if err != nil {
		s.log.Warn("a run that was left", "run", id, "error", err)
		return
	}
	defer j.Close()
	if j.Record().State == Ended {
		return
	}
	err = j.Cancel(ctx)
	switch {
	case errors.Is(err, sandbox.ErrUnsupported):
		if err := j.Detach(); err != nil {
			s.log.Warn("a run that was left", "run", id, "error", err)
			return
		}
		s.log.Warn("a run goes on whose Sallyport has ended: `sallyport runs wait "+id+"` brings its result", "run", id)
		return
	case err != nil:
		s.log.Warn("cancelling a run that was left", "run", id, "error", err)
		return
	}
	wait, end := context.WithTimeout(ctx, tidyTimeout)
	defer end()
	if _, err := j.Wait(wait, nil); err != nil {
		s.log.Warn("cancelling a run that was left", "run", id, "error", err)
		return
	}
	s.log.Info("cancelled a run whose Sallyport has ended", "run", id)
}
