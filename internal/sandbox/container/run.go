package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// run is one container, seen from the program that started it.
type run struct {
	b       *Engine
	handle  sandbox.Handle
	name    string
	process *process
	limits  sandbox.Limits
	meter   *meter

	mu        sync.Mutex
	destroyed bool

	ending *supervise.Ending // set when the client is gone

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

// killed is the exit status of a program that SIGKILL ended.
const killed = 128 + 9

// inspectTime bounds inspecting how a container ended.
const inspectTime = 10 * time.Second

// watch waits for the client's end and asks how the container ended.
func (r *run) watch() {
	<-r.process.ended
	defer r.meter.stop()
	ctx, cancel := context.WithTimeout(context.Background(), inspectTime)
	defer cancel()
	r.mu.Lock()
	destroyed := r.destroyed
	r.mu.Unlock()
	var state *condition
	var err error
	if !destroyed { // otherwise it is gone already, and the reason is known
		state, err = r.settled(ctx)
		// The engine and the kernel may report a kill for memory only after the end.
		for range 20 {
			if state == nil || state.Running || state.OOMKilled || state.ExitCode != killed || r.meter.outOfMemory() {
				break
			}
			time.Sleep(100 * time.Millisecond)
			if later, err := r.b.cli.inspectContainer(ctx, r.name); err == nil {
				state = later
			}
		}
	}
	r.mu.Lock()
	exit := r.reason(state, err)
	r.mu.Unlock()
	r.ending.Set(exit)
}

// settled returns the container's state once the engine has noticed its end,
// which the client may have seen earlier.
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

// reason returns why the run ended. Callers hold mu.
func (r *run) reason(state *condition, err error) sandbox.Exit {
	out := sandbox.Exit{Code: r.process.code, Detail: r.process.stderr.lastWords()}
	oom := false
	if state != nil && !state.Running {
		out.Code = state.ExitCode
		// Another process of it may have been killed long before.
		oom = (state.OOMKilled || r.meter.outOfMemory()) && state.ExitCode == killed
	}
	failure := asFailure(err)
	switch {
	case oom, (r.destroyed || state == nil) && r.meter.outOfMemory():
		out.Reason, out.Detail = sandbox.OutOfMemory, ""
	case r.destroyed:
		out.Reason, out.Detail = sandbox.Destroyed, ""
	case state != nil && !state.Running:
		out.Reason, out.Detail = sandbox.Exited, state.Error
	case failure == errNoContainer:
		out.Reason, out.Detail = sandbox.EngineDied, "the container was removed from outside"
	case failure == errNotRunning:
		f := r.b.finding(context.Background(), err)
		out.Reason, out.Detail = sandbox.EngineDied, f.Title+"; to fix it: "+f.Remedy
	case err != nil:
		out.Reason, out.Detail = sandbox.EngineDied, err.Error()
	default:
		out.Reason = sandbox.EngineDied
		if out.Detail == "" {
			out.Detail = fmt.Sprintf("the %s client that carried the container's streams ended with status %d", r.b.opts.Engine, r.process.code)
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
	return sandbox.Channel{Stdin: r.process.Stdin, Stdout: r.process.Stdout, Stderr: r.process.stderr}
}

// Wait implements sandbox.Run.
func (r *run) Wait(ctx context.Context) (sandbox.Exit, error) { return r.ending.Wait(ctx) }

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
	r.process.Stdin.Close()
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
	<-r.ending.Done()
	r.process.Close()
	r.b.runs.Drop(r.handle.ID)
	r.released = true
	if err != nil && asFailure(err) == errNotRunning {
		// An engine that is gone usually has no running containers. A later sweep
		// finds what it has when it comes back.
		r.b.log.Warn("the engine is gone; the container will be removed later", "container", r.name, "error", err)
		r.b.orphaned()
		err = nil
	}
	if err != nil {
		r.releaseErr = &sandbox.Error{Op: "destroy", Backend: r.b.Name(), Err: err}
	}
	return r.releaseErr
}

// command runs a command of the engine on the container.
func (r *run) command(ctx context.Context, op string, args ...string) error {
	select {
	case <-r.ending.Done():
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

// over reports whether the container has ended, even if its client has not.
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
	if done, err := r.meter.pause(on); !done {
		return r.command(ctx, op, command)
	} else if err != nil {
		return &sandbox.Error{Op: op, Backend: r.b.Name(), Kind: sandbox.ErrGone, Err: err}
	}
	return nil
}

// Usage implements sandbox.Meter.
func (r *run) Usage(ctx context.Context) (sandbox.Usage, error) {
	u, err := r.meter.usage(ctx)
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
