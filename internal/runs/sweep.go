package runs

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// Refresh asks the services how the runs are that have not ended and that no
// program follows, so that their records say so. Those that were not meant to
// go on alone are ended, as by Sweep. The error is of runs that could not be
// asked for.
func (s *Store) Refresh(ctx context.Context) error {
	list, _ := s.List() // what cannot be read is told by whoever lists
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	few := make(chan struct{}, 8)
	for _, r := range list {
		if r.State == Ended {
			continue
		}
		all.Go(func() {
			few <- struct{}{}
			defer func() { <-few }()
			if !r.Detached {
				s.adopt(ctx, r.ID)
				return
			}
			if err := s.Look(ctx, r.ID); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Look asks the service how a run is, unless another program follows it and
// keeps its record. A run that has ended is fetched.
func (s *Store) Look(ctx context.Context, id string) error {
	j, err := s.Attach(ctx, id)
	if errors.Is(err, ErrFollowed) || errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	defer j.Close()
	if err := j.look(ctx); err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	return nil
}

// Orphans says whether there are runs to be ended: of programs that have died.
func (s *Store) Orphans() bool {
	list, _ := s.List()
	for _, r := range list {
		if r.State == Ended || r.Detached {
			continue
		}
		if unlock, ok, err := s.dir.TryLock(r.ID); err == nil && ok {
			unlock()
			return true
		}
	}
	return false
}

// Adopt ends the runs of programs that have died, where their services can do
// that.
func (s *Store) Adopt(ctx context.Context) {
	list, _ := s.List()
	for _, r := range list {
		if r.State != Ended && !r.Detached && ctx.Err() == nil {
			s.adopt(ctx, r.ID)
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
