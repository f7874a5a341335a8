package runs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// Store holds the runs of one state directory. It is safe for concurrent use, also
// by several processes.
type Store struct {
	dir      store.Dir
	services map[string]batch.Service
	keep     time.Duration
	limits   Limits
	log      *slog.Logger
	onEnd    func(*Record) // or nil
}

// NewStore returns the runs in dir, which is created with the first of them.
// Services are those that may be used, by name. Sweep removes runs that ended
// longer ago than keep; 0 keeps them forever.
func NewStore(dir store.Dir, services map[string]batch.Service, keep time.Duration, limits Limits, log *slog.Logger) *Store {
	return &Store{dir: dir, services: services, keep: keep, limits: limits, log: log}
}

// OnEnd sets the function that is called for every run that this process sees
// end. Sweep and Wait also call it for runs that ended within the last day,
// because the process that saw their end may have died before it reported it:
// f may see a run more than once. OnEnd is called before the store is used.
func (s *Store) OnEnd(f func(*Record)) { s.onEnd = f }

// reportAgain is how long the end of a run is reported again.
const reportAgain = 24 * time.Hour

// reportEnd passes on a run that has ended.
func (s *Store) reportEnd(r Record) {
	if s.onEnd != nil && r.Result != nil && time.Since(r.Ended).Abs() < reportAgain {
		s.onEnd(&r)
	}
}

// Options describe a run to start.
type Options struct {
	Program  string // for people
	Detached bool   // the run goes on when no process follows it
	Client   string // who began it, as it calls itself
}

// A Follower follows one run, for as long as this process holds the run's
// lock. It has one owner, who calls Wait and then Close.
type Follower struct {
	store  *Store
	run    batch.Run
	unlock func()

	mu     sync.Mutex
	record Record
	wrote  time.Time
}

// Start submits a job to a service and follows the run. It chooses the job's ID.
func (s *Store) Start(ctx context.Context, name string, job batch.Job, opts Options) (*Follower, error) {
	service, err := s.service(name)
	if err != nil {
		return nil, err
	}
	id := "run-" + strings.ToLower(rand.Text()[:12])
	unlock, ok, err := s.dir.TryLock(id)
	if err != nil {
		return nil, fmt.Errorf("a run needs a record: %w", err)
	}
	if !ok {
		return nil, ErrFollowed // cannot happen: the ID is new
	}
	job.ID = id
	j := &Follower{store: s, unlock: unlock, record: Record{
		Version: recordVersion, ID: id, Service: name, Program: opts.Program, State: Starting,
		Created: time.Now().UTC(), Timeout: job.Timeout.Seconds(), Queue: job.Queue.Seconds(), Detached: opts.Detached, Client: opts.Client,
	}}
	// Written first, so that a crash in between leaves a trace.
	if err := s.reserve(&j.record); err != nil {
		j.Close()
		_ = s.dir.DropLock(id)
		return nil, fmt.Errorf("a run needs a record: %w", err)
	}
	run, err := service.Submit(ctx, &job)
	if err != nil {
		_ = s.remove(id)
		j.Close()
		return nil, err
	}
	j.run = run
	h := run.Handle()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.record.Handle, j.record.State = &h, Queued
	if err := s.write(&j.record); err != nil {
		s.log.Warn("the record of a run could not be written", "run", id, "error", err)
	}
	return j, nil
}

// Attach follows a run that no process follows.
func (s *Store) Attach(ctx context.Context, id string) (*Follower, error) {
	if _, err := s.Get(id); err != nil {
		return nil, err
	}
	unlock, ok, err := s.dir.TryLock(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("run %s: %w", id, ErrFollowed)
	}
	j := &Follower{store: s, unlock: unlock}
	r, err := s.Get(id) // as the last follower left it
	if err != nil {
		j.Close()
		return nil, err
	}
	j.record = *r
	if r.State == Ended && (r.Trouble == "" || r.Handle == nil) {
		return j, nil // there is nothing at the service to attach to
	}
	j.run, err = s.attach(ctx, r)
	if errors.Is(err, sandbox.ErrGone) {
		if r.State != Ended {
			j.record.Result = &Result{End: batch.Lost, ExitCode: -1, Error: err.Error()}
		}
		j.record.State, j.record.Trouble, j.record.Ended = Ended, err.Error(), time.Now().UTC()
		if err := s.write(&j.record); err != nil {
			j.Close()
			return nil, err
		}
		return j, nil
	}
	if err != nil {
		j.Close()
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	return j, nil
}

// attach finds the run of a record at its service.
func (s *Store) attach(ctx context.Context, r *Record) (batch.Run, error) {
	service, err := s.service(r.Service)
	if err != nil {
		return nil, err
	}
	h := sandbox.Handle{Backend: r.Service, ID: r.ID}
	if r.Handle != nil {
		h = *r.Handle
	}
	return service.Attach(ctx, h)
}

func (s *Store) service(name string) (batch.Service, error) {
	if found, ok := s.services[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("%w: add %s to the setting `batch.services`", ErrOff, name)
}

// Cancel asks the service to end a run, whoever follows it. A run that has
// already ended is not an error. If no process follows the run, Cancel waits a
// while for its end, so that the record shows it.
func (s *Store) Cancel(ctx context.Context, id string) error {
	r, err := s.Get(id)
	if err != nil {
		return err
	}
	if r.State == Ended {
		return nil
	}
	j, err := s.Attach(ctx, id)
	if err == nil {
		defer j.Close()
		return s.cancelAlone(ctx, j)
	}
	if !errors.Is(err, ErrFollowed) {
		return err
	}
	run, err := s.attach(ctx, r)
	if errors.Is(err, sandbox.ErrGone) {
		return nil
	}
	if err == nil {
		err = run.Cancel(ctx)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	return nil
}

// cancelAlone cancels a run that no other process follows.
func (s *Store) cancelAlone(ctx context.Context, j *Follower) error {
	if j.Record().State == Ended {
		return nil
	}
	if err := j.Cancel(ctx); err != nil {
		return fmt.Errorf("run %s: %w", j.ID(), err)
	}
	wait, end := context.WithTimeout(ctx, tidyTimeout)
	defer end()
	if _, err := j.Wait(wait, nil); err != nil {
		s.log.Info("a cancelled run has not ended yet", "run", j.ID(), "error", err)
	}
	return nil
}

// Output opens what a run that has ended wrote to standard output or, if stderr
// is set, to standard error.
func (s *Store) Output(id string, stderr bool) (io.ReadCloser, error) {
	if _, err := s.Get(id); err != nil {
		return nil, err
	}
	f, err := s.dir.Sub(id).Open(streamName(stderr))
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return f, err
}

func streamName(stderr bool) string {
	if stderr {
		return "stderr"
	}
	return "stdout"
}

// Files opens the directory of the files that a run left.
func (s *Store) Files(id string) (*os.Root, error) {
	r, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	if !r.Fetched {
		return nil, fmt.Errorf("run %s has no files here: %w", id, fs.ErrNotExist)
	}
	dir, err := s.dir.Sub(id).OpenRoot()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.OpenRoot(filesName)
}

// filesName is the directory of a run's files.
const filesName = "files"

// Remove deletes a run that has ended, with its output and its files.
func (s *Store) Remove(id string) error {
	r, err := s.Get(id)
	if err != nil {
		return err
	}
	unlock, ok, err := s.dir.TryLock(id)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("run %s: %w", id, ErrFollowed)
	}
	defer unlock()
	if r.State != Ended {
		return fmt.Errorf("run %s has not ended: cancel it first (sallyport runs cancel %s)", id, id)
	}
	return s.remove(id)
}

func (s *Store) remove(id string) error {
	if err := s.dir.RemoveAll(id); err != nil {
		return err
	}
	if err := s.dir.Remove(recordName(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
