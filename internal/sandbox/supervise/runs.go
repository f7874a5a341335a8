package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// ErrClosed is the error of a start on an engine that is closed.
var ErrClosed = errors.New("the engine is closed")

// handleVersion is the version of the handles that [Runs.Handle] returns.
const handleVersion = 1

// Runs keeps track of an engine's runs. Make one with NewRuns.
type Runs struct {
	engine string
	count  func(runs int)

	mu     sync.Mutex
	runs   map[string]sandbox.Run // by ID; nil while one starts
	closed bool
}

// NewRuns returns the bookkeeping of an engine. If count is not nil, it is
// called with the number of runs whenever that changes. It must not call Runs.
func NewRuns(engine string, count func(runs int)) *Runs {
	return &Runs{engine: engine, count: count, runs: map[string]sandbox.Run{}}
}

// Handle returns the handle of a run.
func (r *Runs) Handle(id string) sandbox.Handle {
	return sandbox.Handle{Backend: r.engine, Version: handleVersion, ID: id}
}

// Start implements sandbox.Engine's Start: it checks the spec with check,
// starts the run with start, and registers it until Drop. Any error becomes a
// *sandbox.Error; start may return one to choose its kind.
func (r *Runs) Start(ctx context.Context, spec *sandbox.Spec, check func(*sandbox.Spec) error, start func() (sandbox.Run, error)) (sandbox.Run, error) {
	if err := check(spec); err != nil {
		kind := sandbox.ErrInvalidSpec
		if errors.Is(err, sandbox.ErrUnsupported) {
			kind = sandbox.ErrUnsupported
		}
		return nil, r.startError(kind, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, r.startError(sandbox.ErrStart, err)
	}
	return r.Register(spec.ID, start)
}

// Register is Start without a spec.
func (r *Runs) Register(id string, start func() (sandbox.Run, error)) (sandbox.Run, error) {
	if err := r.reserve(id); err != nil {
		return nil, r.startError(sandbox.ErrStart, err)
	}
	run, err := start()
	if err != nil {
		r.Drop(id)
		return nil, r.startError(sandbox.ErrStart, err)
	}
	r.mu.Lock()
	closed := r.closed
	r.runs[id] = run
	r.mu.Unlock()
	if closed {
		_ = run.Destroy(context.Background())
		return nil, r.startError(sandbox.ErrStart, ErrClosed)
	}
	return run, nil
}

func (r *Runs) startError(kind, err error) error {
	if _, ok := err.(*sandbox.Error); ok { //nolint:errorlint // one that is wrapped lacks the kind
		return err
	}
	return &sandbox.Error{Op: "start", Backend: r.engine, Kind: kind, Err: err}
}

func (r *Runs) reserve(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	if _, taken := r.runs[id]; taken {
		return fmt.Errorf("a run with the ID %q exists", id)
	}
	r.runs[id] = nil
	r.changed()
	return nil
}

// Drop forgets a run. A run calls it when it has been destroyed.
func (r *Runs) Drop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.runs, id)
	r.changed()
}

// changed is called with mu held, so that count sees the numbers in order.
func (r *Runs) changed() {
	if r.count != nil {
		r.count(len(r.runs))
	}
}

// Closed reports whether Close was called.
func (r *Runs) Closed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Attach implements sandbox.Engine's Attach for engines whose runs do not
// outlive their program: it returns a run of this program, or calls sweep, which
// removes what dead programs left.
func (r *Runs) Attach(h sandbox.Handle, sweep func() error, log *slog.Logger) (sandbox.Run, error) {
	fail := func(kind, err error) (sandbox.Run, error) {
		return nil, &sandbox.Error{Op: "attach", Backend: r.engine, Kind: kind, Err: err}
	}
	if h.Backend != r.engine {
		return fail(sandbox.ErrInvalidSpec, fmt.Errorf("the handle belongs to engine %q", h.Backend))
	}
	if h.Version != handleVersion {
		return fail(sandbox.ErrUnsupported, fmt.Errorf("the handle has version %d; this program knows version %d", h.Version, handleVersion))
	}
	r.mu.Lock()
	run := r.runs[h.ID]
	r.mu.Unlock()
	if run != nil {
		return run, nil
	}
	if err := sweep(); err != nil {
		log.Warn("cannot remove what an earlier program left", "error", err)
	}
	return fail(sandbox.ErrGone, nil)
}

// Close refuses further starts and destroys every run within timeout. Runs that
// are still starting are destroyed as soon as they have started.
func (r *Runs) Close(timeout time.Duration) error {
	r.mu.Lock()
	r.closed = true
	var runs []sandbox.Run
	for _, run := range r.runs {
		if run != nil {
			runs = append(runs, run)
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	errs := make([]error, len(runs))
	var wg sync.WaitGroup
	for i, run := range runs {
		wg.Go(func() { errs[i] = run.Destroy(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
