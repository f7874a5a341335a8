package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sallyport/internal/sandbox"
)

// run is one container, seen from the program that started it.
type run struct {
	b       *Backend
	handle  sandbox.Handle
	name    string
	process *process
	limits  sandbox.Limits
	gauge   *gauge

	mu        sync.Mutex
	destroyed bool

	ended chan struct{} // closed when the client is gone and exit is set
	exit  sandbox.Exit

	releasing  sync.Mutex
	released   bool
	releaseErr error
}

var (
	_ sandbox.Run         = (*run)(nil)
	_ sandbox.Duplexer    = (*run)(nil)
	_ sandbox.Interrupter = (*run)(nil)
	_ sandbox.Meter       = (*run)(nil)
	_ sandbox.Pauser      = (*run)(nil)
	_ sandbox.Logger      = (*run)(nil)
)

// inspectTime bounds the question how a container ended.
const inspectTime = 10 * time.Second

// watch waits for the client's end and asks how the container ended.
func (r *run) watch() {
	<-r.process.ended
	r.gauge.stop()
	ctx, cancel := context.WithTimeout(context.Background(), inspectTime)
	defer cancel()
	r.mu.Lock()
	destroyed := r.destroyed
	r.mu.Unlock()
	var state *condition
	var err error
	if !destroyed { // else it is gone already, and the reason is known
		state, err = r.settled(ctx)
	}
	r.mu.Lock()
	r.exit = r.reason(state, err)
	r.mu.Unlock()
	close(r.ended)
}

// settled is the container's condition once it has ended: the client may be
// quicker than the engine's own book-keeping.
func (r *run) settled(ctx context.Context) (*condition, error) {
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		r.mu.Lock()
		destroyed := r.destroyed
		r.mu.Unlock()
		state, err := r.b.cli.inspectContainer(ctx, r.name)
		if err != nil || !state.Running || destroyed || wait > time.Second {
			return state, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return state, nil
		}
	}
}

// reason says why the run ended. Callers hold mu.
func (r *run) reason(state *condition, err error) sandbox.Exit {
	const killed = 128 + 9
	out := sandbox.Exit{Code: r.process.code, Detail: r.process.stderr.lastWords()}
	oom := false
	if state != nil && !state.Running {
		out.Code = state.ExitCode
		// Something else of it may have been ended long before.
		oom = (state.OOMKilled || r.gauge.outOfMemory()) && state.ExitCode == killed
	}
	failure := asFailure(err)
	switch {
	case oom, (r.destroyed || state == nil) && r.gauge.outOfMemory():
		out.Reason, out.Detail = sandbox.OutOfMemory, ""
	case r.destroyed:
		out.Reason, out.Detail = sandbox.Destroyed, ""
	case state != nil && !state.Running:
		out.Reason, out.Detail = sandbox.Exited, state.Error
	case failure == errNoContainer:
		out.Reason, out.Detail = sandbox.EngineDied, "somebody removed the container"
	case failure == errNotRunning:
		f := r.b.finding(context.Background(), err)
		out.Reason, out.Detail = sandbox.EngineDied, f.Title+"; to fix it: "+f.Remedy
	case err != nil:
		out.Reason, out.Detail = sandbox.EngineDied, err.Error()
	default:
		out.Reason = sandbox.EngineDied
		if out.Detail == "" {
			out.Detail = fmt.Sprintf("the %s client ended (status %d), which had the container's streams", r.b.opts.Engine, r.process.code)
		}
	}
	if out.Reason != sandbox.Exited && out.Code <= 0 {
		out.Code = killed
	}
	return out
}

// Handle implements sandbox.Run.
func (r *run) Handle() sandbox.Handle { return r.handle }

// Channel implements sandbox.Duplexer.
func (r *run) Channel() sandbox.Channel {
	return sandbox.Channel{Stdin: r.process.stdin, Stdout: r.process.stdout, Stderr: r.process.stderr}
}

// Wait implements sandbox.Run.
func (r *run) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-r.ended:
		return r.exit, nil
	default:
	}
	select {
	case <-r.ended:
		return r.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Destroy implements sandbox.Run.
func (r *run) Destroy(context.Context) error {
	r.releasing.Lock()
	defer r.releasing.Unlock()
	if r.released {
		return r.releaseErr
	}
	r.mu.Lock()
	r.destroyed = true
	r.mu.Unlock()
	r.process.stdin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	err := r.b.remove(ctx, r.name)
	// The client ends with its container.
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.process.ended:
	case <-timer.C:
		r.process.kill()
	}
	<-r.ended
	r.process.close()
	r.b.leave(r.handle.ID)
	r.released = true
	if err != nil && asFailure(err) == errNotRunning {
		// An engine that is gone has no containers that run, as a rule; what
		// it has when it comes back, a sweep finds.
		r.b.log.Warn("the engine is gone; its container is removed later", "container", r.name, "error", err)
		r.b.orphaned()
		err = nil
	}
	if err != nil {
		r.releaseErr = &sandbox.Error{Op: "destroy", Backend: r.b.Name(), Err: err}
	}
	return r.releaseErr
}

// command has the engine do something with the container.
func (r *run) command(ctx context.Context, op string, args ...string) error {
	select {
	case <-r.ended:
		return &sandbox.Error{Op: op, Backend: r.b.Name(), Kind: sandbox.ErrGone}
	default:
	}
	_, err := r.b.cli.output(ctx, append(args, r.name)...)
	if err == nil {
		return nil
	}
	out := &sandbox.Error{Op: op, Backend: r.b.Name(), Err: err}
	if failure := asFailure(err); failure == errNoContainer || r.over(ctx) {
		out.Kind = sandbox.ErrGone
	} else if failure == errNotRunning {
		out.Kind = sandbox.ErrUnavailable
	}
	return out
}

// over says whether the container has ended, though its client may not.
func (r *run) over(ctx context.Context) bool {
	select {
	case <-r.process.ended:
		return true
	default:
	}
	state, err := r.b.cli.inspectContainer(ctx, r.name)
	return errors.Is(err, errNoContainer) || err == nil && !state.Running && state.Status != "paused"
}

// Interrupt implements sandbox.Interrupter.
func (r *run) Interrupt(ctx context.Context) error {
	return r.command(ctx, "interrupt", "kill", "--signal", "INT")
}

// Pause implements sandbox.Pauser.
func (r *run) Pause(ctx context.Context) error {
	return r.pause(ctx, true)
}

// Resume implements sandbox.Pauser.
func (r *run) Resume(ctx context.Context) error {
	return r.pause(ctx, false)
}

func (r *run) pause(ctx context.Context, on bool) error {
	op, command := "resume", "unpause"
	if on {
		op, command = "pause", "pause"
	}
	if done, err := r.gauge.pause(on); !done {
		return r.command(ctx, op, command)
	} else if err != nil {
		return &sandbox.Error{Op: op, Backend: r.b.Name(), Kind: sandbox.ErrGone, Err: err}
	}
	return nil
}

// Usage implements sandbox.Meter.
func (r *run) Usage(ctx context.Context) (sandbox.Usage, error) {
	u, err := r.gauge.usage(ctx)
	if err != nil {
		return sandbox.Usage{CPU: -1, MemoryBytes: -1, PeakBytes: -1}, &sandbox.Error{Op: "usage", Backend: r.b.Name(), Err: err}
	}
	return u, nil
}

// Logs implements sandbox.Logger.
func (r *run) Logs(context.Context) (string, error) {
	logs := r.process.stderr.notes()
	if words := r.process.stderr.lastWords(); words != "" {
		logs += "\n" + words
	}
	return logs, nil
}
