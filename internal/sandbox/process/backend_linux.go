//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/hostroot"
)

// Backend is the engine. Make one with New.
type Backend struct {
	opts      Options
	log       *slog.Logger
	root      bool
	interpret sync.Mutex
	python    *hostroot.Interpreter // found, guarded by interpret

	trial      sync.Mutex
	tried      bool
	namespaces error // why there are none, once tried

	mu     sync.Mutex
	place  *instance // nil until the first start
	runs   map[string]*run
	closed bool
}

// New returns the engine. It starts nothing and touches nothing on the host.
func New(opts Options) (*Backend, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.RuntimeDir == "" || opts.CacheDir == "" {
		return nil, errors.New("process: RuntimeDir and CacheDir are needed")
	}
	if opts.Executable == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		opts.Executable = exe
	}
	if opts.Python == "" {
		opts.Python = "python3"
	}
	if opts.Path == "" {
		opts.Path = "/usr/local/bin:/usr/bin:/bin"
	}
	if opts.WorkDir == "" {
		opts.WorkDir = "/tmp"
	}
	return &Backend{opts: opts, log: opts.Log, root: os.Geteuid() == 0, runs: map[string]*run{}}, nil
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string { return Name }

// Start implements sandbox.Backend.
func (b *Backend) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	fail := func(kind, err error) (sandbox.Run, error) {
		return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: kind, Err: err}
	}
	if err := b.check(spec); err != nil {
		if errors.Is(err, sandbox.ErrUnsupported) {
			return fail(sandbox.ErrUnsupported, err)
		}
		return fail(sandbox.ErrInvalidSpec, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(sandbox.ErrStart, err)
	}
	if err := b.obstacle(ctx); err != nil {
		return fail(sandbox.ErrUnavailable, err)
	}
	place, err := b.enter(spec.ID)
	if err != nil {
		return fail(sandbox.ErrStart, err)
	}
	r, err := b.start(ctx, place, spec)
	if err != nil {
		b.leave(spec.ID)
		return fail(sandbox.ErrStart, err)
	}
	b.mu.Lock()
	closed := b.closed
	b.runs[spec.ID] = r
	b.mu.Unlock()
	if closed {
		_ = r.Destroy(context.Background())
		return fail(sandbox.ErrStart, errors.New("the engine was closed"))
	}
	return r, nil
}

// enter reserves the run's name, and makes sure that this program has its
// place among the runtime files.
func (b *Backend) enter(id string) (*instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("the engine is closed")
	}
	if _, taken := b.runs[id]; taken {
		return nil, fmt.Errorf("a run with the ID %q exists", id)
	}
	if b.place == nil {
		place, err := openInstance(b.opts.RuntimeDir, b.opts.WorkDir, b.log)
		if err != nil {
			return nil, err
		}
		b.place = place
	}
	b.runs[id] = nil
	return b.place, nil
}

func (b *Backend) leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, id)
}

// start makes what the run needs, a record first, and undoes it on error.
func (b *Backend) start(ctx context.Context, place *instance, spec *sandbox.Spec) (*run, error) {
	var (
		l   *launch
		err error
	)
	if b.tryNamespaces() == nil {
		l, err = b.planNamespaces(ctx, place, spec)
	} else {
		l, err = b.planPlain(ctx, place, spec)
	}
	if err != nil {
		return nil, err
	}
	r := &run{handle: sandbox.Handle{Backend: Name, Version: 1, ID: spec.ID}, ended: make(chan struct{})}
	r.release = func() error {
		if shared := place.sharedDir(); b.opts.Link != "" && shared != "" {
			unlink(filepath.Join(shared, spec.ID, "workspace"), b.opts.Link)
		}
		err := place.forget(spec.ID)
		b.leave(spec.ID)
		return err
	}
	if err := r.launch(ctx, l); err != nil {
		_ = r.release()
		return nil, err
	}
	return r, nil
}

// interpreter finds the Python to run; the default one is looked for once.
func (b *Backend) interpreter(ctx context.Context, name string) (*hostroot.Interpreter, error) {
	if name != "" {
		return hostroot.FindInterpreter(ctx, name, b.opts.Path)
	}
	b.interpret.Lock()
	defer b.interpret.Unlock()
	if b.python == nil {
		p, err := hostroot.FindInterpreter(ctx, b.opts.Python, b.opts.Path)
		if err != nil {
			return nil, err
		}
		b.python = p
	}
	return b.python, nil
}

// Bounds of a spec: files pass through the stage's memory, and with fewer
// descriptors the guest does not come up.
const (
	maxFiles     = 16 << 20
	minOpenFiles = 64
)

func (b *Backend) check(spec *sandbox.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	if total := spec.FileBytes(); total > maxFiles {
		return fmt.Errorf("files of %d bytes together; at most %d", total, maxFiles)
	}
	switch {
	case spec.Root.Python != "" && !filepath.IsAbs(spec.Root.Python):
		return fmt.Errorf("interpreter %q: an absolute path is needed", spec.Root.Python)
	case spec.Root.Image != "":
		return fmt.Errorf("images are %w", sandbox.ErrUnsupported)
	case spec.Code != "" || !reflect.ValueOf(spec.Batch).IsZero():
		return fmt.Errorf("batch code is %w: send it over the channel", sandbox.ErrUnsupported)
	case spec.Network == sandbox.NetworkInternet && b.opts.Internet:
	case spec.Network != sandbox.NetworkNone:
		return fmt.Errorf("a network is %w as it is configured", sandbox.ErrUnsupported)
	case spec.Limits.CPUs > 0:
		return fmt.Errorf("a limit of processor time is %w: the place has what it has", sandbox.ErrUnsupported)
	case spec.Limits.OpenFiles > 0 && spec.Limits.OpenFiles < minOpenFiles:
		return fmt.Errorf("%d open files; the guest needs %d", spec.Limits.OpenFiles, minOpenFiles)
	}
	return nil
}

// Attach implements sandbox.Backend: a run never outlives its program, so
// there is nothing to attach to, and what a crash left is removed here.
func (b *Backend) Attach(_ context.Context, h sandbox.Handle) (sandbox.Run, error) {
	if h.Backend != Name {
		return nil, &sandbox.Error{Op: "attach", Backend: Name, Kind: sandbox.ErrInvalidSpec, Err: fmt.Errorf("the handle is of engine %q", h.Backend)}
	}
	if h.Version != 1 {
		return nil, &sandbox.Error{Op: "attach", Backend: Name, Kind: sandbox.ErrUnsupported, Err: fmt.Errorf("version %d of the handle", h.Version)}
	}
	b.mu.Lock()
	r := b.runs[h.ID]
	b.mu.Unlock()
	if r != nil {
		return r, nil
	}
	if err := sweep(b.opts.RuntimeDir, b.log); err != nil {
		b.log.Warn("sweeping", "error", err)
	}
	return nil, &sandbox.Error{Op: "attach", Backend: Name, Kind: sandbox.ErrGone}
}

// Close implements sandbox.Backend.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	var runs []*run
	for _, r := range b.runs {
		if r != nil {
			runs = append(runs, r)
		}
	}
	place := b.place
	b.place = nil
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var (
		wg   sync.WaitGroup
		errs = make([]error, len(runs))
	)
	for i, r := range runs {
		wg.Go(func() { errs[i] = r.Destroy(ctx) })
	}
	wg.Wait()
	if place != nil {
		errs = append(errs, place.close())
	}
	return errors.Join(errs...)
}
