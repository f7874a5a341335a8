package runs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// strayAge is the age from which a run at a service without a record counts as
// lost. A younger one may just be starting in another process.
const strayAge = time.Hour

// Sweep cleans up after processes that died. It cancels runs that no process
// follows and that were not detached; where the service cannot cancel, the run
// goes on and can be waited for. It removes old runs, and reports the end of
// recent ones again. Failures are logged.
func (s *Store) Sweep(ctx context.Context) {
	list, err := s.List()
	if err != nil {
		s.log.Warn("listing runs", "error", err)
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
			s.reportEnd(*r)
		case !r.Detached:
			s.adopt(ctx, r.ID)
		}
	}
	for name, service := range s.services {
		gone, err := service.Sweep(ctx, strayAge, func(id string) bool {
			// A record may have been written since.
			_, err := s.Get(id)
			return known[id] || !errors.Is(err, ErrUnknown)
		})
		if err != nil && ctx.Err() == nil {
			s.log.Warn("looking for runs without a record", "service", name, "error", err)
		}
		for _, id := range gone {
			s.log.Info("ended a run without a record", "service", name, "run", id)
		}
	}
}

// Refresh updates the records of the runs that have not ended and that no
// process follows. Those that were not detached are cancelled, as by Sweep. The
// error lists the runs whose state could not be determined.
func (s *Store) Refresh(ctx context.Context) error {
	list, _ := s.List() // callers that list report unreadable records
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

// Look updates the record of a run from its service, unless another process
// follows the run. It fetches a run that has ended.
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

// Orphans reports whether processes that died have left runs.
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

// Adopt cancels the runs that processes have left which died, where the
// services can do that.
func (s *Store) Adopt(ctx context.Context) {
	list, _ := s.List()
	for _, r := range list {
		if r.State != Ended && !r.Detached && ctx.Err() == nil {
			s.adopt(ctx, r.ID)
		}
	}
}

// adopt cancels a run whose follower has died.
func (s *Store) adopt(ctx context.Context, id string) {
	j, err := s.Attach(ctx, id)
	if errors.Is(err, ErrFollowed) || errors.Is(err, ErrUnknown) || errors.Is(err, ErrOff) {
		return
	}
	if err != nil {
		s.log.Warn("following a run that was left behind", "run", id, "error", err)
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
			s.log.Warn("detaching a run that was left behind", "run", id, "error", err)
			return
		}
		s.log.Warn("a run goes on after the program that started it has ended: get its result with `sallyport runs wait "+id+"`", "run", id)
		return
	case err != nil:
		s.log.Warn("cancelling a run that was left behind", "run", id, "error", err)
		return
	}
	wait, end := context.WithTimeout(ctx, tidyTimeout)
	defer end()
	if _, err := j.Wait(wait, nil); err != nil {
		s.log.Warn("cancelling a run that was left behind", "run", id, "error", err)
		return
	}
	s.log.Info("cancelled a run that was left behind", "run", id)
}
