//go:build unix

package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
)

// Names of the two personalities.
const (
	Name      = "fake"
	BatchName = "fake-batch"
)

// Options of a fake engine. The zero value is usable.
type Options struct {
	// Python is the interpreter: a path, or a name to look up. Empty: python3.
	Python string
	// Dir holds a directory for each run while it lives. Empty: a temporary
	// directory that Close removes.
	Dir string
	// OwnRoot gives each run a root in which /workspace is its own, as the
	// contract has it, on a Linux that lets the caller make namespaces. Without
	// it a run has the host's root, and another directory as its workspace.
	OwnRoot bool
	// Batch selects the batch personality.
	Batch bool
	// Faults says what goes wrong with the run of a spec. Nil: nothing.
	Faults func(*sandbox.Spec) Faults
}

// Backend is a fake engine.
type Backend struct {
	opts Options

	mu     sync.Mutex
	runs   map[string]destroyer // by ID; nil while one is starting
	dir    string
	ownDir bool
	closed bool
}

type destroyer interface {
	Destroy(context.Context) error
}

var _ sandbox.Backend = (*Backend)(nil)

// New returns a fake engine. It starts nothing.
func New(opts Options) *Backend {
	if opts.Python == "" {
		opts.Python = "python3"
	}
	return &Backend{opts: opts, runs: make(map[string]destroyer)}
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string {
	if b.opts.Batch {
		return BatchName
	}
	return Name
}

// Probe implements sandbox.Backend.
func (b *Backend) Probe(ctx context.Context) (*sandbox.Report, error) {
	if err := ctx.Err(); err != nil {
		return nil, b.fail("probe", nil, err)
	}
	r := &sandbox.Report{
		Backend:   b.Name(),
		Usable:    true,
		Isolation: sandbox.NoIsolation,
		Duplex:    !b.opts.Batch,
		Limits:    map[sandbox.Resource]sandbox.LimitReport{},
		Findings:  []sandbox.Finding{{Title: "nothing is isolated", Detail: "this engine is for tests"}},
	}
	for _, l := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU, sandbox.Disk, sandbox.OpenFiles} {
		r.Limits[l] = sandbox.LimitReport{Enforcement: sandbox.Absent, By: "nothing"}
	}
	path, err := exec.LookPath(b.opts.Python)
	if err != nil {
		r.Usable = false
		r.Findings = append(r.Findings, sandbox.Finding{
			Fatal: true, Title: "no Python", Detail: err.Error(), Remedy: "install Python 3.9 or newer",
		})
		return r, nil
	}
	r.Python = path
	return r, nil
}

// Start implements sandbox.Backend.
func (b *Backend) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	if err := check(spec, b.opts.Batch); err != nil {
		kind := sandbox.ErrInvalidSpec
		if errors.Is(err, sandbox.ErrUnsupported) {
			kind = sandbox.ErrUnsupported
		}
		return nil, b.fail("start", kind, err)
	}
	var faults Faults
	if b.opts.Faults != nil {
		faults = b.opts.Faults(spec)
	}
	if faults.Start != nil {
		return nil, b.fail("start", sandbox.ErrStart, faults.Start)
	}
	if err := ctx.Err(); err != nil {
		return nil, b.fail("start", sandbox.ErrStart, err)
	}
	python := b.opts.Python
	if spec.Root.Python != "" {
		python = spec.Root.Python
	}
	python, err := exec.LookPath(python)
	if err != nil {
		return nil, b.fail("start", sandbox.ErrUnavailable, err)
	}
	dir, err := b.reserve(spec.ID)
	if err != nil {
		return nil, b.fail("start", sandbox.ErrStart, err)
	}
	p := &process{
		backend: b,
		handle:  sandbox.Handle{Backend: b.Name(), Version: 1, ID: spec.ID},
		dir:     dir,
		ended:   make(chan struct{}),
	}
	var run sandbox.Run
	if b.opts.Batch {
		run, err = startBatch(p, python, spec)
	} else {
		run, err = startDuplex(p, python, spec, faults)
	}
	if err != nil {
		b.forget(spec.ID)
		return nil, b.fail("start", sandbox.ErrStart, errors.Join(err, os.RemoveAll(dir)))
	}
	b.mu.Lock()
	closed := b.closed
	b.runs[spec.ID] = p
	b.mu.Unlock()
	if closed {
		_ = run.Destroy(ctx)
		return nil, b.fail("start", sandbox.ErrStart, errClosed)
	}
	return run, nil
}

var errClosed = errors.New("the engine is closed")

// reserve takes an ID and makes its directory.
func (b *Backend) reserve(id string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", errClosed
	}
	if _, taken := b.runs[id]; taken {
		return "", fmt.Errorf("a run with the ID %q exists", id)
	}
	if b.dir == "" {
		b.dir = b.opts.Dir
		if b.dir == "" {
			dir, err := os.MkdirTemp("", "sallyport-fake-")
			if err != nil {
				return "", err
			}
			b.dir, b.ownDir = dir, true
		}
	}
	dir := filepath.Join(b.dir, id)
	for _, sub := range []string{"guest", "workspace", "tmp", "files"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	b.runs[id] = nil
	return dir, nil
}

func (b *Backend) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, id)
}

// Attach implements sandbox.Backend. The processes of a fake engine do not
// outlive the program, so there is nothing to attach to.
func (b *Backend) Attach(_ context.Context, h sandbox.Handle) (sandbox.Run, error) {
	if h.Backend != b.Name() || h.Version != 1 {
		return nil, b.fail("attach", sandbox.ErrUnsupported, fmt.Errorf("a handle of %q, version %d", h.Backend, h.Version))
	}
	return nil, b.fail("attach", sandbox.ErrGone, nil)
}

// Close implements sandbox.Backend.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	var runs []destroyer
	for _, r := range b.runs {
		if r != nil {
			runs = append(runs, r)
		}
	}
	b.mu.Unlock()
	var errs []error
	for _, r := range runs {
		errs = append(errs, r.Destroy(context.Background()))
	}
	if b.ownDir {
		errs = append(errs, os.RemoveAll(b.dir))
	}
	return errors.Join(errs...)
}

func (b *Backend) fail(op string, kind, err error) error {
	return &sandbox.Error{Op: op, Backend: b.Name(), Kind: kind, Err: err}
}

// argv is the guest's command line with the sources in dir.
func argv(python, dir string) []string {
	args := guest.Argv(python)
	for i, a := range args {
		if rel, err := filepath.Rel(guest.Dir, a); err == nil && filepath.IsLocal(rel) {
			args[i] = filepath.Join(dir, rel)
		}
	}
	return args
}
