package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sallyport/internal/sandbox"
)

// maxFiles bounds what Spec.Files may weigh: it passes through the client.
const maxFiles = 64 << 20

// checkSpec refuses what is malformed, and what no container can do.
func checkSpec(spec *sandbox.Spec) error {
	if err := spec.Check(); err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrInvalidSpec, err)
	}
	switch {
	case spec.Root.Python != "":
		return fmt.Errorf("an interpreter of the host is %w: name an image", sandbox.ErrUnsupported)
	case spec.Code != "":
		return fmt.Errorf("batch code is %w: send it over the channel", sandbox.ErrUnsupported)
	case spec.Network != sandbox.NetworkNone:
		return fmt.Errorf("a network is %w", sandbox.ErrUnsupported)
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

// Start implements sandbox.Backend.
func (b *Backend) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	fail := func(kind, err error) (sandbox.Run, error) {
		return nil, &sandbox.Error{Op: "start", Backend: b.Name(), Kind: kind, Err: err}
	}
	if err := checkSpec(spec); err != nil {
		if errors.Is(err, sandbox.ErrUnsupported) {
			return fail(sandbox.ErrUnsupported, err)
		}
		return fail(sandbox.ErrInvalidSpec, err)
	}
	if err := ctx.Err(); err != nil {
		return fail(sandbox.ErrStart, err)
	}
	if err := b.reserve(spec.ID); err != nil {
		return fail(sandbox.ErrStart, err)
	}
	r, err := b.start(ctx, spec)
	if err != nil {
		b.leave(spec.ID)
		kind, err := b.startError(ctx, spec, err)
		return fail(kind, err)
	}
	b.mu.Lock()
	closed := b.closed
	b.runs[spec.ID] = r
	b.mu.Unlock()
	if closed {
		_ = r.Destroy(context.Background())
		return fail(sandbox.ErrStart, errClosed)
	}
	return r, nil
}

// startError says what a failed start means, and what to do about it.
func (b *Backend) startError(ctx context.Context, spec *sandbox.Spec, err error) (kind, out error) {
	if ctx.Err() != nil || errors.Is(err, errClosed) {
		return sandbox.ErrStart, err
	}
	b.unlearn(b.reference(spec)) // something is not as it was
	failure := asFailure(err)
	switch {
	case errors.Is(err, errNoImage) || failure == errNoImage:
		remedy := ""
		if b.opts.Pull != PullNever {
			remedy = fmt.Sprintf(". Is its name right, and its registry reachable? `%s pull %s` says more", b.opts.Engine, b.reference(spec))
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

// reserve takes the run's name.
func (b *Backend) reserve(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if _, taken := b.runs[id]; taken {
		return fmt.Errorf("a run with the ID %q exists", id)
	}
	b.runs[id] = nil
	b.machine.busy()
	return nil
}

func (b *Backend) leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, id)
	if len(b.runs) == 0 {
		b.machine.idle()
	}
}

// enter makes sure that this program has its place, and that what dead ones
// left is gone.
func (b *Backend) enter(ctx context.Context, target string) (*instance, error) {
	b.opening.Lock()
	defer b.opening.Unlock()
	b.mu.Lock()
	place := b.place
	b.mu.Unlock()
	if place == nil {
		if err := b.sweep(ctx, target); err != nil {
			// Leftovers do no harm to a new sandbox.
			b.log.Warn("cannot remove what an earlier program left", "error", err)
		}
		var err error
		if place, err = openInstance(b.opts.State, target); err != nil {
			return nil, err
		}
		b.mu.Lock()
		b.place = place
		b.mu.Unlock()
	}
	return place, place.touch(target)
}

// start makes the container.
func (b *Backend) start(ctx context.Context, spec *sandbox.Spec) (*run, error) {
	if err := b.machine.ready(ctx); err != nil {
		return nil, err
	}
	f, img, err := b.ready(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := b.honest(img.trial.limits(f)); err != nil {
		return nil, err
	}
	limits := spec.Limits.WithDefaults()
	if err := b.possible(f, limits); err != nil {
		return nil, err
	}
	place, err := b.enter(ctx, f.Target)
	if err != nil {
		return nil, err
	}
	marker := newMarker()
	p, err := newPayload(spec, img.trial.bundle, marker)
	if err != nil {
		return nil, err
	}
	container := b.box(f, img, place.id, spec.ID, limits)
	container.owner = spec.Owner
	x, err := b.cli.launch(ctx, container.args(), p, marker)
	if err != nil {
		b.undo(ctx, container.name)
		return nil, err
	}
	r := &run{
		b:       b,
		handle:  sandbox.Handle{Backend: b.Name(), Version: 1, ID: spec.ID},
		name:    container.name,
		process: x,
		limits:  limits,
		ended:   make(chan struct{}),
	}
	r.gauge = newGauge(r, img.trial)
	b.all.Go(r.watch)
	return r, nil
}

// possible refuses limits that nothing here would hold.
func (b *Backend) possible(f *facts, limits sandbox.Limits) error {
	if limits.CPUs > 0 && !f.CPU {
		return fmt.Errorf("%w: a limit on cores (limits.cpus): %s has no control group for it", sandbox.ErrUnsupported, f.where())
	}
	return nil
}

// box is the container for a run.
func (b *Backend) box(f *facts, img *image, instance, id string, limits sandbox.Limits) *box {
	out := &box{
		name:     namePrefix + instance + "-" + id,
		instance: instance,
		run:      id,
		image:    img.ID,
		python:   b.opts.Python,
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
	if img.trial != nil {
		_, out.flags.gvisor = img.trial.gvisor()
	}
	out.seccomp = b.seccomp(f)
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
func (b *Backend) undo(ctx context.Context, name string) {
	if ctx.Err() != nil {
		b.orphaned() // a client that was given up may have asked for it, and the engine make it after this
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
	defer cancel()
	if err := b.remove(ctx, name); err != nil && asFailure(err) != errNotRunning {
		b.log.Warn("removing the container of a failed start", "container", name, "error", err)
	}
}

// detachKeys is a sequence of keys that does not occur. A client only looks for
// it where bytes arrive one at a time, and holds back the first of them, so it
// has none that may end a frame or a payload.
func detachKeys() string {
	keys := make([]string, 16)
	random := rand.Text()
	for i := range keys {
		keys[i] = "ctrl-" + string('a'+random[i]%8)
	}
	return strings.Join(keys, ",")
}

// newMarker is a line that a client does not write.
func newMarker() string { return "\nsallyport-" + rand.Text() + "\n" }

// Attach implements sandbox.Backend: a container does not outlive its program
// for long, so there is nothing to attach to, and what a crash left is removed
// here.
func (b *Backend) Attach(ctx context.Context, h sandbox.Handle) (sandbox.Run, error) {
	if h.Backend != b.Name() {
		return nil, &sandbox.Error{Op: "attach", Backend: b.Name(), Kind: sandbox.ErrInvalidSpec, Err: fmt.Errorf("the handle is of engine %q", h.Backend)}
	}
	b.mu.Lock()
	r := b.runs[h.ID]
	b.mu.Unlock()
	if r != nil && h.Version == r.handle.Version {
		return r, nil
	}
	b.probing.Lock()
	f, err := b.known(ctx)
	b.probing.Unlock()
	if err == nil {
		err = b.sweep(ctx, f.Target)
	}
	if err != nil {
		b.log.Warn("sweeping", "error", err)
	}
	return nil, &sandbox.Error{Op: "attach", Backend: b.Name(), Kind: sandbox.ErrGone}
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
	b.mu.Unlock()
	b.end()
	ctx, cancel := context.WithTimeout(context.Background(), 2*removeTime)
	defer cancel()
	var (
		wg   sync.WaitGroup
		errs = make([]error, len(runs))
	)
	for i, r := range runs {
		wg.Go(func() { errs[i] = r.Destroy(ctx) })
	}
	wg.Wait()
	b.all.Wait()
	err := errors.Join(errs...)
	b.mu.Lock()
	place := b.place
	b.place = nil
	left := b.left
	b.mu.Unlock()
	b.machine.close(ctx)
	if place != nil {
		err = errors.Join(err, place.close(err == nil && !left))
	}
	return err
}

// orphaned says that a container may be left, for whoever sweeps.
func (b *Backend) orphaned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
}

// removeTime bounds the removal of a container.
const removeTime = 20 * time.Second
