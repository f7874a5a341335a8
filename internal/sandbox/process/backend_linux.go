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
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// Engine is the engine. Make one with New.
type Engine struct {
	opts Options
	log  *slog.Logger
	root bool
	host hostroot.Finder

	trial      sync.Mutex
	tried      bool
	namespaces error // why there are none, once tried

	runs *supervise.Runs
	dir  *instance // opened by the first start
}

// New returns the engine. It starts nothing and touches nothing on the host.
func New(opts Options) (*Engine, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.RuntimeDir == "" || opts.CacheDir == "" || opts.Program == nil {
		return nil, errors.New("process: RuntimeDir, CacheDir and Program are needed")
	}
	if opts.Executable == "" {
		opts.Executable = executable.Own
	}
	if opts.Path == "" {
		opts.Path = "/usr/local/bin:/usr/bin:/bin"
	}
	if opts.WorkDir == "" {
		opts.WorkDir = "/tmp"
	}
	return &Engine{
		opts: opts, log: opts.Log, root: os.Geteuid() == 0,
		runs: supervise.NewRuns(Name, nil), dir: newInstance(opts.RuntimeDir, opts.WorkDir, opts.Log),
		host: hostroot.Finder{Name: opts.Interpreter, Path: opts.Path},
	}, nil
}

// Name implements sandbox.Engine.
func (b *Engine) Name() string { return Name }

// Start implements sandbox.Engine.
func (b *Engine) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	return b.runs.Start(ctx, spec, b.check, func() (sandbox.Run, error) {
		if err := b.obstacle(ctx); err != nil {
			return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: sandbox.ErrUnavailable, Err: err}
		}
		return b.start(ctx, spec)
	})
}

// start makes what the run needs, its record first, and starts it. On error it
// undoes everything.
func (b *Engine) start(ctx context.Context, spec *sandbox.Spec) (*supervise.Run, error) {
	if err := b.dir.Open(); err != nil {
		return nil, err
	}
	plan := b.planPlain
	if b.tryNamespaces() == nil {
		plan = b.planNamespaces
	}
	l, err := plan(ctx, spec)
	if err != nil {
		return nil, err
	}
	return b.launch(ctx, spec.ID, l, func() error {
		if shared := b.dir.sharedDir(); b.opts.Link != "" && shared != "" {
			unlink(filepath.Join(shared, spec.ID, "workspace"), b.opts.Link)
		}
		err := b.dir.forget(spec.ID)
		b.runs.Drop(spec.ID)
		return err
	})
}

// minOpenFiles are the descriptors that the guest needs to start.
const minOpenFiles = 64

func (b *Engine) check(spec *sandbox.Spec) error {
	if err := supervise.CheckSpec(spec); err != nil {
		return err
	}
	switch {
	case spec.Root.Interpreter != "" && !filepath.IsAbs(spec.Root.Interpreter):
		return fmt.Errorf("interpreter %q: an absolute path is needed", spec.Root.Interpreter)
	case spec.Root.Image != "" || spec.Root.Packages != "":
		return fmt.Errorf("images, and environments with packages of their own, are %w: this engine runs the host's own Python", sandbox.ErrUnsupported)
	case spec.Network.Internet && !b.opts.Internet:
		return fmt.Errorf("a network is %w as it is configured", sandbox.ErrUnsupported)
	case spec.Limits.CPUs > 0:
		return fmt.Errorf("a CPU limit is %w: runs share the place's processors", sandbox.ErrUnsupported)
	case spec.Limits.OpenFiles > 0 && spec.Limits.OpenFiles < minOpenFiles:
		return fmt.Errorf("%d open files; the guest needs %d", spec.Limits.OpenFiles, minOpenFiles)
	}
	return nil
}

// Attach implements sandbox.Engine. It finds only this program's runs, because
// no other outlives its program, and removes what dead programs left.
func (b *Engine) Attach(_ context.Context, h sandbox.Handle) (sandbox.Run, error) {
	return b.runs.Attach(h, b.dir.Sweep, b.log)
}

// closeTime bounds Close.
const closeTime = 10 * time.Second

// Close implements sandbox.Engine.
func (b *Engine) Close() error {
	return errors.Join(b.runs.Close(closeTime), b.dir.Close())
}
