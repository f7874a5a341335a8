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

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Name is the engine's name.
const Name = "fake"

// Options of a fake engine. The zero value is usable.
type Options struct {
	// Interpreter is a path, or a name to look up. Empty: python3.
	Interpreter string
	// Dir holds a directory for each run while it lives. Empty: a temporary
	// directory that Close removes.
	Dir string
	// OwnRoot gives each run a root in which /workspace is its own, as the
	// contract has it, on a Linux that lets the caller make namespaces. Without
	// it a run has the host's root, another directory as its workspace, and folders
	// only where they are on the host.
	OwnRoot bool
	// Faults says what goes wrong with the run of a spec. Nil: nothing.
	Faults func(*sandbox.Spec) Faults
}

// Engine is a fake engine.
type Engine struct {
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

var _ sandbox.Engine = (*Engine)(nil)

// New returns a fake engine. It starts nothing.
func New(opts Options) *Engine {
	if opts.Interpreter == "" {
		opts.Interpreter = "python3"
	}
	return &Engine{opts: opts, runs: make(map[string]destroyer)}
}

// Name implements sandbox.Engine.
func (b *Engine) Name() string { return Name }

// Probe implements sandbox.Engine.
func (b *Engine) Probe(ctx context.Context) (*sandbox.Report, error) {
	if err := ctx.Err(); err != nil {
		return nil, b.fail("probe", nil, err)
	}
	r := &sandbox.Report{
		Backend:   b.Name(),
		Usable:    true,
		Isolation: sandbox.NoIsolation,
		Duplex:    true,
		Limits:    map[sandbox.Resource]sandbox.LimitReport{},
		Findings:  []sandbox.Finding{{Title: "nothing is isolated", Detail: "this engine is for tests"}},
	}
	for _, l := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU, sandbox.Disk, sandbox.OpenFiles} {
		r.Limits[l] = sandbox.LimitReport{Enforcement: sandbox.Absent, By: "nothing"}
	}
	path, err := exec.LookPath(b.opts.Interpreter)
	if err != nil {
		r.Usable = false
		r.Findings = append(r.Findings, sandbox.Finding{
			Fatal: true, Title: "no Python", Detail: err.Error(), Remedy: "install Python 3.9 or newer",
		})
		return r, nil
	}
	r.Runtime = path
	return r, nil
}

// Start implements sandbox.Engine.
func (b *Engine) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	if err := check(spec); err != nil {
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
	if err := checkFolders(spec.Mounts); err != nil {
		return nil, b.fail("start", sandbox.ErrStart, err)
	}
	interpreter := b.opts.Interpreter
	if spec.Root.Interpreter != "" {
		interpreter = spec.Root.Interpreter
	}
	interpreter, err := exec.LookPath(interpreter)
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
	run, err := start(p, interpreter, spec, faults)
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
func (b *Engine) reserve(id string) (string, error) {
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
	for _, sub := range []string{"guest", "workspace", "tmp", "packages", "files"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	b.runs[id] = nil
	return dir, nil
}

func (b *Engine) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, id)
}

// Attach implements sandbox.Engine. The processes of a fake engine do not
// outlive the program, so there is nothing to attach to.
func (b *Engine) Attach(_ context.Context, h sandbox.Handle) (sandbox.Run, error) {
	if h.Backend != b.Name() || h.Version != 1 {
		return nil, b.fail("attach", sandbox.ErrUnsupported, fmt.Errorf("a handle of %q, version %d", h.Backend, h.Version))
	}
	return nil, b.fail("attach", sandbox.ErrGone, nil)
}

// Close implements sandbox.Engine.
func (b *Engine) Close() error {
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

func (b *Engine) fail(op string, kind, err error) error {
	return &sandbox.Error{Op: op, Backend: b.Name(), Kind: kind, Err: err}
}
