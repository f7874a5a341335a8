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

	"sallyport/internal/sandbox"
	"sallyport/internal/state"
)

// Store is the runs of one state directory. It is safe for concurrent use, also
// by several processes.
type Store struct {
	dir     state.Dir
	engines map[string]sandbox.Backend
	keep    time.Duration
	limits  Limits
	log     *slog.Logger
	ended   func(*Record) // nil: nobody wants to know
}

// NewStore returns the runs in dir, which exists once there is one. Engines are
// those that may be used, by name. Runs that ended longer ago than keep are
// forgotten by Sweep; 0 keeps them for ever.
func NewStore(dir state.Dir, engines map[string]sandbox.Backend, keep time.Duration, limits Limits, log *slog.Logger) *Store {
	return &Store{dir: dir, engines: engines, keep: keep, limits: limits, log: log}
}

// OnEnd has told be told of every run that this process sees end, by a
// goroutine that waits for it, and by Sweep and Wait of runs that ended lately:
// the process that saw it may have died before it told anybody. So told may learn
// of a run more than once. It is called before the store is used.
func (s *Store) OnEnd(told func(*Record)) { s.ended = told }

// lately is how long the end of a run is told again.
const lately = 24 * time.Hour

// tell tells of a run that has ended.
func (s *Store) tell(r Record) {
	if s.ended != nil && r.Result != nil && time.Since(r.Ended).Abs() < lately {
		s.ended(&r)
	}
}

// Options say more of a run that is started.
type Options struct {
	Program  string // for people
	Detached bool
}

// A Job is a run that this process follows. Its owner calls Wait and then
// Close, and nobody else.
type Job struct {
	store  *Store
	run    sandbox.Run
	unlock func()

	mu     sync.Mutex
	record Record
	wrote  time.Time
}

// Start starts a run of the spec, whose ID it makes.
func (s *Store) Start(ctx context.Context, backend string, spec sandbox.Spec, opts Options) (*Job, error) {
	engine, err := s.engine(backend)
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
	spec.ID = id
	j := &Job{store: s, unlock: unlock, record: Record{
		Version: recordVersion, ID: id, Backend: backend, Program: opts.Program, State: Starting,
		Created: time.Now().UTC(), Timeout: spec.Batch.Timeout.Seconds(), Queue: spec.Batch.Queue.Seconds(), Detached: opts.Detached,
	}}
	// Before the start, so that a crash in between leaves a trace.
	if err := s.reserve(&j.record); err != nil {
		j.Close()
		_ = s.dir.DropLock(id)
		return nil, fmt.Errorf("a run needs a record: %w", err)
	}
	run, err := engine.Start(ctx, &spec)
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

// Attach follows a run that nobody follows.
func (s *Store) Attach(ctx context.Context, id string) (*Job, error) {
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
	j := &Job{store: s, unlock: unlock}
	r, err := s.Get(id) // as whoever had it before has left it
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
			j.record.Result = &Result{End: sandbox.BatchLost, ExitCode: -1, Error: err.Error()}
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
func (s *Store) attach(ctx context.Context, r *Record) (sandbox.Run, error) {
	engine, err := s.engine(r.Backend)
	if err != nil {
		return nil, err
	}
	h := sandbox.Handle{Backend: r.Backend, ID: r.ID}
	if r.Handle != nil {
		h = *r.Handle
	}
	return engine.Attach(ctx, h)
}

func (s *Store) engine(name string) (sandbox.Backend, error) {
	if e, ok := s.engines[name]; ok {
		return e, nil
	}
	return nil, fmt.Errorf("%w: add %s to the setting `backends`", ErrOff, name)
}

// Cancel asks the service to end a run, whoever follows it. It is not an error
// when the run has ended meanwhile. Where nobody follows it, its end is waited
// for, for a while, so that the record tells of it.
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
		err = cancel(ctx, run)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	return nil
}

// cancelAlone cancels a run that nobody else follows.
func (s *Store) cancelAlone(ctx context.Context, j *Job) error {
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

func cancel(ctx context.Context, run sandbox.Run) error {
	c, ok := sandbox.As[sandbox.Canceler](run)
	if !ok {
		return fmt.Errorf("%w: the run cannot be cancelled", sandbox.ErrUnsupported)
	}
	return c.Cancel(ctx)
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

// Files opens the directory in which the files lie that a run left.
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

// Remove forgets a run that has ended, its output and its files.
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
