package container

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// maxFiles bounds the size of Spec.Files: they pass through the client.
const maxFiles = 64 << 20

// checkSpec rejects a malformed spec, and one that asks for more than containers
// can do.
func checkSpec(spec *sandbox.Spec) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrInvalidSpec, err)
	}
	switch {
	case spec.Root.Interpreter != "":
		return fmt.Errorf("running a host interpreter is %w: name an image", sandbox.ErrUnsupported)
	case spec.Root.Packages != "":
		return fmt.Errorf("an archive of packages is %w: this engine takes images", sandbox.ErrUnsupported)
	case spec.Network.Internet:
		return fmt.Errorf("a network is %w", sandbox.ErrUnsupported)
	case spec.Program == nil || spec.Program.Loader == nil:
		return fmt.Errorf("%w: no program that can be loaded into a container", sandbox.ErrInvalidSpec)
	}
	total := 0
	for _, f := range spec.Files {
		total += len(f.Data)
	}
	if total > maxFiles {
		return fmt.Errorf("%w: files of %d bytes together; at most %d", sandbox.ErrInvalidSpec, total, maxFiles)
	}
	if spec.Root.Image != "" {
		if err := checkReference(spec.Root.Image); err != nil {
			return fmt.Errorf("%w: %w", sandbox.ErrInvalidSpec, err)
		}
	}
	return nil
}

// Start implements sandbox.Engine.
func (b *Engine) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	return b.runs.Start(ctx, spec, checkSpec, func() (sandbox.Run, error) {
		r, err := b.start(ctx, spec)
		if err != nil {
			kind, err := b.startError(ctx, spec, err)
			return nil, &sandbox.Error{Op: "start", Backend: b.Name(), Kind: kind, Err: err}
		}
		return r, nil
	})
}

// startError explains a failed start, with what to do about it.
func (b *Engine) startError(ctx context.Context, spec *sandbox.Spec, err error) (kind, out error) {
	if ctx.Err() != nil || errors.Is(err, supervise.ErrClosed) {
		return sandbox.ErrStart, err
	}
	b.unlearn(b.reference(spec)) // something has changed
	failure := asFailure(err)
	switch {
	case errors.Is(err, errNoImage) || failure == errNoImage:
		remedy := ""
		if b.opts.Pull != PullNever && pullable(b.reference(spec)) {
			remedy = fmt.Sprintf(". Check its name and whether its registry is reachable: `%s pull %s` shows more", b.opts.Engine, b.reference(spec))
		}
		return sandbox.ErrUnsupported, fmt.Errorf("%w%s", err, remedy)
	case errors.Is(err, errLess):
		return sandbox.ErrUnavailable, err
	case failure == nil:
		return sandbox.ErrStart, err
	}
	f := b.finding(context.WithoutCancel(ctx), err)
	err = fmt.Errorf("%s (%w)", f.Title, err)
	if f.Remedy != "" {
		err = fmt.Errorf("%w. To fix it: %s", err, f.Remedy)
	}
	return sandbox.ErrUnavailable, err
}

// enter returns this program's instance. The first call makes it, and removes
// what dead programs left.
func (b *Engine) enter(ctx context.Context, target string) (*instance, error) {
	b.opening.Lock()
	defer b.opening.Unlock()
	b.mu.Lock()
	in := b.instance
	b.mu.Unlock()
	if in == nil {
		if err := b.sweep(ctx, target); err != nil {
			// Leftovers do no harm to a new sandbox.
			b.log.Warn("cannot remove what an earlier program left", "error", err)
		}
		var err error
		if in, err = openInstance(b.opts.State, target); err != nil {
			return nil, err
		}
		b.mu.Lock()
		b.instance = in
		if !b.closed {
			b.all.Go(func() {
				if err := b.dropImages(b.life, target); err != nil && b.life.Err() == nil {
					b.log.Warn("cannot remove images that are no longer in the store", "error", err)
				}
			})
		}
		b.mu.Unlock()
	}
	return in, in.touch(target)
}

// start makes the container.
func (b *Engine) start(ctx context.Context, spec *sandbox.Spec) (*run, error) {
	if err := b.machine.ready(ctx); err != nil {
		return nil, err
	}
	f, img, err := b.ready(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := b.honest(img.inspection.limits(f)); err != nil {
		return nil, err
	}
	limits := spec.Limits.WithDefaults()
	if err := b.possible(f, limits); err != nil {
		return nil, err
	}
	in, err := b.enter(ctx, f.Target)
	if err != nil {
		return nil, err
	}
	marker := newMarker()
	bundle, err := b.bundle(img, spec.Program)
	if err != nil {
		return nil, err
	}
	p, err := newPayload(ctx, spec, bundle, marker)
	if err != nil {
		return nil, err
	}
	folders, err := b.openFolders(ctx, f, img, in.id, spec)
	if err != nil {
		return nil, err
	}
	defer folders.close() // the container has mounts of its own
	container := b.containerSpec(f, img, in.id, spec.ID, spec.Program, limits)
	container.owner = spec.Owner
	folders.apply(container, spec.Mounts)
	if len(folders.binds) > 0 {
		container.seccomp = b.seccomp(f, folderProfile())
	}
	x, err := b.cli.launch(ctx, container.args(), p, marker)
	if err != nil {
		b.undo(ctx, container.name)
		return nil, err
	}
	if err := folders.verify(ctx, b, container.name); err != nil {
		b.undo(ctx, container.name)
		x.abandon()
		return nil, err
	}
	r := &run{
		b:       b,
		handle:  b.runs.Handle(spec.ID),
		name:    container.name,
		process: x,
		limits:  limits,
		ending:  supervise.NewEnding(),
	}
	r.meter = newMeter(r, img.inspection)
	b.all.Go(r.watch)
	return r, nil
}

// bundle returns what the image's interpreter compiled of the program, or nil.
func (b *Engine) bundle(img *image, program *sandbox.Program) ([]byte, error) {
	tried, err := b.opts.Program.Digest()
	if err != nil {
		return nil, err
	}
	wanted, err := program.Digest()
	if err != nil || wanted != tried {
		return nil, err
	}
	return img.inspection.bundle, nil
}

// possible rejects limits that nothing here would enforce.
func (b *Engine) possible(f *facts, limits sandbox.Limits) error {
	if limits.CPUs > 0 && !f.CPU {
		return fmt.Errorf("%w: a limit on cores (limits.cpus): %s has no control group for it", sandbox.ErrUnsupported, f.where())
	}
	return nil
}

// containerSpec returns the specification of a run's container.
func (b *Engine) containerSpec(f *facts, img *image, instance, id string, program *sandbox.Program, limits sandbox.Limits) *containerSpec {
	out := &containerSpec{
		name:     namePrefix + instance + "-" + id,
		instance: instance,
		run:      id,
		image:    img.ID,
		argv:     command(program, cmp.Or(img.Interpreter, b.opts.Interpreter)),
		user:     b.opts.User,
		runtime:  b.opts.Runtime,
		userns:   b.opts.UserNamespace,
		limits:   limits,
		volumes:  img.Volumes,
		flags: flags{
			podman: f.Podman, remote: f.Remote,
			memory: f.Memory, swap: f.Swap, pids: f.Pids, cpus: f.CPU,
			envHost: f.EnvHost, httpProxy: f.HTTPProxy,
		},
	}
	if img.inspection != nil {
		_, out.flags.gvisor = img.inspection.gvisor()
	}
	out.seccomp = b.seccomp(f, profile)
	if f.Remote {
		out.flags.detachKeys = detachKeys()
	}
	if f.ownUsers() {
		out.flags.uids, out.flags.gids = f.UIDs, f.GIDs
	}
	if !f.Remote || f.Lowered {
		files, processes := ceilings()
		out.flags.maxOpen = files
		if f.Podman {
			out.flags.maxProcesses = processes
		}
	}
	return out
}

// undo removes the container of a failed start, even if ctx is done.
func (b *Engine) undo(ctx context.Context, name string) {
	if ctx.Err() != nil {
		b.orphaned() // the engine may still make the container that a cancelled client asked for
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := b.remove(ctx, name); err != nil && asFailure(err) != errNotRunning {
		b.log.Warn("cannot remove the container of a failed start", "container", name, "error", err)
	}
}

// detachKeys returns a sequence of keys that does not occur. A client looks for
// it only when bytes arrive one at a time, and holds back the first of them, so
// the sequence must not contain a byte that can end a frame or a payload.
func detachKeys() string {
	keys := make([]string, 16)
	random := rand.Text()
	for i := range keys {
		keys[i] = "ctrl-" + string('a'+random[i]%8)
	}
	return strings.Join(keys, ",")
}

// newMarker returns a line that no client writes by itself.
func newMarker() string { return "\nsallyport-" + rand.Text() + "\n" }

// Attach implements sandbox.Engine. It finds only this program's runs, because
// no container outlives its program for long, and removes what dead programs
// left.
func (b *Engine) Attach(ctx context.Context, h sandbox.Handle) (sandbox.Run, error) {
	return b.runs.Attach(h, func() error {
		b.probing.Lock()
		f, err := b.known(ctx)
		b.probing.Unlock()
		if err != nil {
			return err
		}
		return b.sweep(ctx, f.Target)
	}, b.log)
}

// Close implements sandbox.Engine.
func (b *Engine) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	ctx, cancel := context.WithTimeout(context.Background(), 2*removeTime)
	defer cancel()
	err := b.runs.Close(2 * removeTime)
	b.all.Wait()
	b.mu.Lock()
	in := b.instance
	b.instance = nil
	left := b.left
	b.mu.Unlock()
	b.machine.close(ctx)
	if in != nil {
		err = errors.Join(err, in.close(err == nil && !left))
	}
	return err
}

// orphaned records that a container may be left for a sweeper.
func (b *Engine) orphaned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
}

// removeTime bounds the removal of a container.
const removeTime = 20 * time.Second
