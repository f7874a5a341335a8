//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
	"github.com/sallyport/sallyport/internal/sandbox/instancedir"
	"github.com/sallyport/sallyport/internal/sandbox/programdir"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// Engine is the gVisor engine. Make one with New.
type Engine struct {
	opts   Options
	log    *slog.Logger
	groups hierarchy
	scopes scopes
	host   hostroot.Finder
	images images

	trying sync.Mutex
	works  *bool // whether sandboxes need a user namespace, once known; guarded by trying

	runs *supervise.Runs
	dir  *instancedir.Dir // opened by the first start
}

// New returns the engine. It starts nothing and touches nothing on the host.
func New(opts Options) (*Engine, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if opts.RuntimeDir == "" || opts.CacheDir == "" || opts.Program == nil {
		return nil, errors.New("gvisor: RuntimeDir, CacheDir and Program are needed")
	}
	if opts.Executable == "" {
		opts.Executable = executable.Own
	}
	if opts.Path == "" {
		opts.Path = "/usr/local/bin:/usr/bin:/bin"
	}
	groups := findHierarchy("/")
	return &Engine{
		opts:   opts,
		log:    opts.Log,
		host:   hostroot.Finder{Name: opts.Interpreter, Path: opts.Path},
		groups: groups,
		scopes: scopes{address: opts.UserBus, v2: groups.v2, proc: "/proc"},
		runs:   supervise.NewRuns(Name, nil),
		dir:    instancedir.New(opts.RuntimeDir, mountName, removeRecorded, opts.Log),
	}, nil
}

// Name implements sandbox.Engine.
func (b *Engine) Name() string { return Name }

// Start implements sandbox.Engine.
func (b *Engine) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	return b.begin(ctx, spec, nil)
}

// begin starts a new sandbox, or restores one if image is not nil.
func (b *Engine) begin(ctx context.Context, spec *sandbox.Spec, image *sandbox.Image) (sandbox.Run, error) {
	check := func(spec *sandbox.Spec) error {
		if err := checkSpec(spec); err != nil {
			return err
		}
		if spec.Root.Image != "" && b.opts.Images == nil {
			return startError(sandbox.ErrUnsupported, fmt.Errorf("%w: %s: images cannot be stored: set stateDir", errNoImage, spec.Root.Image))
		}
		return nil
	}
	return b.runs.Start(ctx, spec, check, func() (sandbox.Run, error) {
		r, err := b.start(ctx, spec, image)
		if err != nil {
			return nil, b.explainStart(ctx, err)
		}
		return r, nil
	})
}

// explainStart finds the kind and the cause of a failed start.
func (b *Engine) explainStart(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errNoImage):
		return startError(sandbox.ErrUnsupported, err)
	case errors.Is(err, sandbox.ErrFolder):
		return err
	case ctx.Err() != nil:
		return startError(sandbox.ErrStart, err)
	}
	failed := err
	if !errors.As(err, new(*unusable)) {
		failed = b.retry(ctx) // what worked before may have been forbidden since
	}
	if errors.As(failed, new(*unusable)) {
		return startError(sandbox.ErrUnavailable, unavailable(b.obstacle(failed)))
	}
	return startError(sandbox.ErrStart, err)
}

func startError(kind, err error) error {
	return &sandbox.Error{Op: "start", Backend: Name, Kind: kind, Err: err}
}

// start makes what the run needs and starts it. On error it undoes everything.
func (b *Engine) start(ctx context.Context, spec *sandbox.Spec, image *sandbox.Image) (*run, error) {
	planned, err := b.root(ctx, spec)
	if err != nil {
		return nil, err
	}
	folders, err := hostroot.OpenFolders(spec.Mounts)
	if err != nil {
		return nil, startError(sandbox.ErrFolder, err)
	}
	hostroot.CloseFolders(folders) // the supervisor opens them again, for itself
	return b.startSandbox(ctx, spec.ID, spec.Limits.WithDefaults(), SupervisorConfig{
		Rootfs: planned.fsys,
		Args:   sandbox.Command(spec.Program.Argv, planned.interpreter, sandbox.ProgramDir),
		Env:    supervise.Environment(spec.Program.Env, planned.env, supervise.Variables(spec.Env)),
		Mounts: spec.Mounts,
	}, image)
}

// startSandbox starts a new sandbox with this root and program, or restores one
// if image is not nil. It records what lies outside the run's namespaces before
// it makes it.
func (b *Engine) startSandbox(ctx context.Context, id string, limits sandbox.Limits, what SupervisorConfig, image *sandbox.Image) (*run, error) {
	if err := b.dir.Open(); err != nil {
		return nil, err
	}
	userns, err := b.way(ctx)
	if err != nil {
		return nil, err
	}
	// The run's control group: its own, a systemd scope, or nil. The scope is
	// made while the supervisor, which may end meanwhile, exists.
	var group atomic.Pointer[cgroup]
	own := b.groups.group(cgroupPrefix + b.dir.ID + "-" + id)
	if err := b.dir.Record(id, record{own.paths()}); err != nil {
		return nil, err
	}
	if err := own.create(limits); err != nil {
		b.log.Debug("cannot make a control group for this sandbox", "run", id, "reason", err)
	} else {
		group.Store(own)
	}
	cfg := &SupervisorConfig{
		ID:               id,
		Mountpoint:       b.dir.Mountpoint(),
		Rootfs:           what.Rootfs,
		Args:             what.Args,
		Env:              what.Env,
		Mounts:           what.Mounts,
		MemoryBytes:      limits.MemoryBytes,
		CPUs:             limits.CPUs,
		Processes:        limits.Processes,
		OpenFiles:        limits.OpenFiles,
		WorkspaceBytes:   limits.WorkspaceBytes,
		TmpBytes:         limits.TmpBytes,
		PackagesBytes:    limits.PackagesBytes,
		DebugLog:         b.opts.DebugDir,
		OwnUserNamespace: userns,
	}
	confine := func(pid int) error {
		if own := group.Load(); own != nil {
			return own.add(pid)
		}
		if userns {
			scope, err := b.scopes.create(ctx, cgroupPrefix+b.dir.ID+"-"+id, pid, limits)
			if err == nil {
				group.Store(scope)
				return nil
			}
			b.log.Debug("cannot make a systemd scope for this sandbox", "run", id, "reason", err)
		}
		if limits.CPUs > 0 {
			return errors.New("a CPU limit needs a control group, and none can be made here")
		}
		cfg.WatchMemory = true
		return nil
	}
	return b.launch(ctx, supervise.Config{
		OutOfMemory: func() bool {
			g := group.Load()
			return g != nil && g.outOfMemory()
		},
		Release: func() error {
			var err error
			if g := group.Load(); g != nil {
				err = g.remove()
			}
			if err == nil {
				// Not before: a sweeper finds the group by its record.
				_ = b.dir.Forget(id)
			}
			b.runs.Drop(id)
			return err
		},
	}, cfg, image, confine)
}

// planned is a sandbox's file system.
type planned struct {
	fsys        hostroot.Rootfs
	interpreter string   // its path in the sandbox
	env         []string // the variables that the interpreter needs
	image       string   // the image's ID, if the root is one
	// marks returns lines that change with the root's content.
	marks func() []string
}

// root plans the sandbox's file system.
func (b *Engine) root(ctx context.Context, spec *sandbox.Spec) (*planned, error) {
	var out *planned
	var err error
	if name := b.imageOf(spec); name != "" {
		out, err = b.imageRoot(ctx, name, spec.Program)
	} else {
		out, err = b.hostRoot(ctx, spec.Root.Interpreter, spec.Program)
	}
	if err != nil {
		return nil, err
	}
	out.fsys.AddFiles(spec.Files)
	return out, nil
}

// hostRoot plans a root of the host's own files.
func (b *Engine) hostRoot(ctx context.Context, name string, program *sandbox.Program) (*planned, error) {
	p, err := b.host.Find(ctx, program, name)
	if err != nil {
		return nil, err
	}
	dir, err := programdir.Install(ctx, b.opts.CacheDir, program, p.Executable)
	if err != nil {
		return nil, err
	}
	out := &planned{}
	if out.fsys, out.interpreter, out.env, err = hostroot.Plan(p, b.opts.Home, dir); err != nil {
		return nil, err
	}
	out.marks = func() []string { return fingerprint(out.fsys, p) }
	return out, nil
}

func checkSpec(spec *sandbox.Spec) error {
	if err := supervise.CheckSpec(spec); err != nil {
		return err
	}
	switch {
	case spec.Root.Packages != "":
		return fmt.Errorf("an archive of packages is %w: this engine takes images", sandbox.ErrUnsupported)
	case spec.Network.Internet:
		return fmt.Errorf("a network is %w", sandbox.ErrUnsupported)
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
	err := errors.Join(b.runs.Close(closeTime), b.dir.Close())
	b.images.release()
	return err
}
