//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/hostroot"
)

// Backend is the gVisor engine. Make one with New.
type Backend struct {
	opts      Options
	log       *slog.Logger
	groups    hierarchy
	scopes    scopes
	interpret sync.Mutex
	python    *hostroot.Interpreter // found, guarded by interpret
	images    images

	trying sync.Mutex
	works  *bool // the way that works, once it is known; guarded by trying

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
		return nil, errors.New("gvisor: RuntimeDir and CacheDir are needed")
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
	groups := findHierarchy("/")
	return &Backend{
		opts:   opts,
		log:    opts.Log,
		groups: groups,
		scopes: scopes{address: opts.UserBus, v2: groups.v2, proc: "/proc"},
		runs:   map[string]*run{},
	}, nil
}

// Name implements sandbox.Backend.
func (b *Backend) Name() string { return Name }

// Start implements sandbox.Backend.
func (b *Backend) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	return b.begin(ctx, spec, nil)
}

// begin starts a sandbox: anew, or from an image.
func (b *Backend) begin(ctx context.Context, spec *sandbox.Spec, image *sandbox.Image) (sandbox.Run, error) {
	fail := func(kind, err error) (sandbox.Run, error) {
		return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: kind, Err: err}
	}
	if err := checkSpec(spec); err != nil {
		if errors.Is(err, sandbox.ErrUnsupported) {
			return fail(sandbox.ErrUnsupported, err)
		}
		return fail(sandbox.ErrInvalidSpec, err)
	}
	if spec.Root.Image != "" && b.opts.Images == nil {
		return fail(sandbox.ErrUnsupported, fmt.Errorf("%w: %s: there is no place for images", errNoImage, spec.Root.Image))
	}
	if err := ctx.Err(); err != nil {
		return fail(sandbox.ErrStart, err)
	}
	place, err := b.enter(spec.ID)
	if err != nil {
		return fail(sandbox.ErrStart, err)
	}
	r, err := b.start(ctx, place, spec, image)
	if err != nil {
		b.leave(spec.ID)
		kind := sandbox.ErrStart
		if errors.Is(err, errNoImage) {
			kind = sandbox.ErrUnsupported
		} else if ctx.Err() == nil {
			failed := err
			if !errors.As(err, new(*unusable)) {
				failed = b.retry(ctx) // what worked once may have been forbidden since
			}
			if errors.As(failed, new(*unusable)) {
				kind = sandbox.ErrUnavailable
				err = unavailable(b.obstacle(failed))
			}
		}
		return fail(kind, err)
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

// enter reserves the run's name and makes sure that this program has its
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
	if err := b.open(); err != nil {
		return nil, err
	}
	b.runs[id] = nil
	return b.place, nil
}

// home is this program's place among the runtime files.
func (b *Backend) home() (*instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("the engine is closed")
	}
	err := b.open()
	return b.place, err
}

// open makes sure of b.place. Callers hold b.mu.
func (b *Backend) open() (err error) {
	if b.place == nil {
		b.place, err = openInstance(b.opts.RuntimeDir, b.log)
	}
	return err
}

func (b *Backend) leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, id)
}

// start makes everything that the run needs, in an order that leaves a record
// of each thing before the thing itself, and undoes it all on error.
func (b *Backend) start(ctx context.Context, place *instance, spec *sandbox.Spec, image *sandbox.Image) (*run, error) {
	planned, err := b.root(ctx, spec)
	if err != nil {
		return nil, err
	}
	return b.startCell(ctx, place, spec.ID, spec.Limits.WithDefaults(), CellConfig{
		Rootfs: planned.fsys,
		Args:   guest.Argv(planned.python),
		Env:    environment(guest.Environ(), planned.env, environ(spec.Env)),
	}, image)
}

// startCell starts a cell with this root and program: anew, or from an image.
func (b *Backend) startCell(ctx context.Context, place *instance, id string, limits sandbox.Limits, what CellConfig, image *sandbox.Image) (*run, error) {
	userns, err := b.way(ctx)
	if err != nil {
		return nil, err
	}
	group := b.groups.group(cgroupPrefix + place.ID + "-" + id)
	if err := place.record(id, group.paths()); err != nil {
		return nil, err
	}
	if err := group.create(limits); err != nil {
		b.log.Debug("no control group of our own for this sandbox", "run", id, "reason", err)
		group = nil
	}
	cfg := CellConfig{
		ID:               id,
		Mountpoint:       place.mountpoint(),
		Rootfs:           what.Rootfs,
		Args:             what.Args,
		Env:              what.Env,
		MemoryBytes:      limits.MemoryBytes,
		Processes:        limits.Processes,
		OpenFiles:        limits.OpenFiles,
		WorkspaceBytes:   limits.WorkspaceBytes,
		TmpBytes:         limits.TmpBytes,
		DebugLog:         b.opts.DebugDir,
		OwnUserNamespace: userns,
	}
	r := &run{
		handle: sandbox.Handle{Backend: Name, Version: 1, ID: id},
		log:    b.log,
		group:  group,
		ended:  make(chan struct{}),
	}
	r.release = func() error {
		var err error
		if r.group != nil {
			err = r.group.remove()
		}
		if err == nil {
			// Only then: the record is what finds the group again.
			place.forget(id)
		}
		b.leave(id)
		return err
	}
	// confine runs when the cell exists and before it does anything.
	confine := func(pid int) error {
		if r.group != nil {
			return r.group.add(pid)
		}
		if userns {
			scope, err := b.scopes.create(ctx, cgroupPrefix+place.ID+"-"+id, pid, limits)
			if err == nil {
				r.mu.Lock()
				r.group = scope
				r.mu.Unlock()
				return nil
			}
			b.log.Debug("no systemd scope for this sandbox", "run", id, "reason", err)
		}
		if limits.CPUs > 0 {
			return errors.New("a CPU limit needs a control group, and none can be made here")
		}
		cfg.WatchMemory = true
		return nil
	}
	if err := r.launch(ctx, b.opts.Executable, userns, confine, &cfg, image); err != nil {
		_ = r.release()
		return nil, err
	}
	return r, nil
}

func environ(m map[string]string) []string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	return out
}

// environment is one of several lists of variables, of which the last counts.
func environment(lists ...[]string) []string {
	var out []string
	at := map[string]int{}
	for _, kv := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

// planned is a sandbox's file system.
type planned struct {
	fsys   hostroot.Rootfs
	python string   // in the sandbox
	env    []string // that it needs
	image  string   // its ID, if it is one
	// marks change with what is in it.
	marks func() []string
}

// root plans the sandbox's file system.
func (b *Backend) root(ctx context.Context, spec *sandbox.Spec) (*planned, error) {
	var out *planned
	var err error
	if name := b.imageOf(spec); name != "" {
		out, err = b.imageRoot(ctx, name)
	} else {
		out, err = b.hostRoot(ctx, spec.Root.Python)
	}
	if err != nil {
		return nil, err
	}
	// The guest copies them, as nobody: here all can be read, and the modes
	// that they are to have lie beside them.
	var modes []byte
	for _, f := range spec.Files {
		out.fsys.Files[filepath.Join(guest.FilesDir, f.Path)] = hostroot.File{Data: f.Data, Mode: 0o644}
		if mode := f.Mode & 0o777; mode != 0 {
			modes = fmt.Appendf(modes, "%o %s\x00", mode, f.Path)
		}
	}
	if modes != nil {
		out.fsys.Files[guest.ModesFile] = hostroot.File{Data: modes, Mode: 0o644}
	}
	return out, nil
}

// hostRoot plans a root of the host's own Python.
func (b *Backend) hostRoot(ctx context.Context, name string) (*planned, error) {
	p, err := b.interpreter(ctx, name)
	if err != nil {
		return nil, err
	}
	dir, err := guest.Install(ctx, b.opts.CacheDir, p.Executable)
	if err != nil {
		return nil, err
	}
	out := &planned{}
	if out.fsys, out.python, out.env, err = hostroot.Plan(p, b.opts.Home, dir, guest.Dir); err != nil {
		return nil, err
	}
	out.marks = func() []string { return fingerprint(out.fsys, p) }
	return out, nil
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

// maxFiles bounds what Spec.Files may weigh: it passes through the cell's
// memory.
const maxFiles = 16 << 20

func checkSpec(spec *sandbox.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	if total := spec.FileBytes(); total > maxFiles {
		return fmt.Errorf("files of %d bytes together; at most %d", total, maxFiles)
	}
	switch {
	case spec.Code != "" || !reflect.ValueOf(spec.Batch).IsZero():
		return fmt.Errorf("batch code is %w: send it over the channel", sandbox.ErrUnsupported)
	case spec.Network != sandbox.NetworkNone:
		return fmt.Errorf("a network is %w", sandbox.ErrUnsupported)
	}
	return nil
}

// Attach implements sandbox.Backend: a sandbox never outlives its program, so
// there is nothing to attach to, and what a crash left is removed here.
func (b *Backend) Attach(_ context.Context, h sandbox.Handle) (sandbox.Run, error) {
	if h.Backend != Name {
		return nil, &sandbox.Error{Op: "attach", Backend: Name, Kind: sandbox.ErrInvalidSpec, Err: fmt.Errorf("the handle is of engine %q", h.Backend)}
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
	b.images.release()
	return errors.Join(errs...)
}
