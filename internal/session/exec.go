package session

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session/capture"
	"github.com/sallyport/sallyport/internal/session/sessionlog"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/wire"
)

// sampleEvery is how often a running execution's processor time is measured.
const sampleEvery = 100 * time.Millisecond

// usageAfter is how long an execution runs before its usage is worth reporting.
const usageAfter = time.Second

// errNotStarted reports that the guest died before it received the code.
var errNotStarted = errors.New("the sandbox ended before the code was sent")

// execution is one run of code in an instance. It is the guest's handler.
type execution struct {
	req   Request
	out   *capture.Recorder
	clock *ownTime
	stop  context.Context // done: the results of calls are no longer needed
	stdin *input          // nil: there is none

	history *sessionlog.Log
	number  uint64 // in it
}

// Output implements guest.Handler.
func (x *execution) Output(s wire.Stream, p []byte) {
	x.out.Write(s, p)
	x.history.Output(x.number, s, p)
}

// Call implements guest.Handler.
func (x *execution) Call(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	if x.stdin != nil && call.Method == wire.MethodStdin {
		return x.read(ctx, call)
	}
	if x.req.Call == nil {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "Unknown RPC type: " + call.Method}
	}
	x.clock.callBegins()
	defer x.clock.callEnds()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.stop, cancel)()
	return x.req.Call(ctx, call)
}

// exec runs one execution to its end. The error is errNotStarted, or why the
// request cannot be sent at all.
func (b *instance) exec(ctx context.Context, config config, req Request, prep *Preparation) (*Outcome, error) {
	var out Outcome
	out.IdleOutput, out.IdleOmitted = b.idleOutput.Take()
	calls, endCalls := context.WithCancel(context.Background())
	defer endCalls()
	x := &execution{
		req: req, out: capture.New(b.limits.OutputBytes, b.budget.Output, req.OnOutput),
		clock: newOwnTime(time.Now()), stop: calls,
		history: b.history.Load(), number: b.conn.Executions() + 1,
		stdin: newInput(req.Stdin),
	}
	out.Number = x.number
	x.history.Begin(x.number, req.Code)
	req.Told.begin(x.history, x.number)
	req.Partial.bind(x.out)
	running, err := b.conn.Start(b.frame(req, prep), x)
	if err != nil {
		if b.dead() || b.conn.Err() != nil {
			return nil, errNotStarted
		}
		return nil, err
	}
	b.noteSent(prep)

	began := time.Now()
	metered := b.usageMeter.Begin(req.OnUsage)
	measured := b.wait(ctx, config, running, x, &out)
	endCalls()
	out.Stdout, out.Stderr = x.out.Close()
	b.collect(ctx, config, req, &out)
	out.Wall = time.Since(began)
	b.usageMeter.End(metered)
	measured = measured && out.Wall >= usageAfter
	if !measured && req.Measure && !b.dead() {
		_, measured = b.usage()
	}
	if measured {
		if used := b.usageMeter.Usage(metered); used.CPU >= 0 {
			out.Usage = &used
		}
	}
	req.Told.end()
	x.history.End(x.number, out.End.String(), out.Reason)
	return &out, nil
}

// frame returns the request as it is sent to the guest, without what the guest
// already knows.
func (b *instance) frame(req Request, prep *Preparation) wire.Exec {
	e := wire.Exec{Code: req.Code, Filename: req.Filename, Script: req.Script, Args: req.Args, Stdin: req.Stdin != nil, HTML: req.HTML, Grants: prep.Grants, Packages: b.packages}
	if b.reseed {
		e.Reseed = entropy()
	}
	for _, d := range prep.Define {
		if version, ok := b.known[d.Name]; !ok || version != d.Version {
			e.Define = append(e.Define, d)
		}
	}
	if prep.DiscoveredVersion != b.discovered {
		e.Discovered = prep.Discovered
		if e.Discovered == nil && b.discovered != "" {
			e.Discovered = []wire.ServerInfo{} // those of another client are not for this code
		}
	}
	return e
}

// noteSent records what the guest knows now.
func (b *instance) noteSent(prep *Preparation) {
	for _, d := range prep.Define {
		b.known[d.Name] = d.Version
	}
	b.discovered = prep.DiscoveredVersion
	b.reseed, b.packages = false, nil
}

// wait follows an execution to its end, ends it when its time is up or its
// caller cancels it, and fills in the outcome. It reports whether the sandbox
// was measured meanwhile.
func (b *instance) wait(ctx context.Context, config config, running *guest.Execution, x *execution, out *Outcome) (measured bool) {
	began := time.Now()
	timeout := x.req.Timeout
	timer := time.NewTimer(min(sampleEvery, timeout, config.WholeRun))
	defer timer.Stop()
	measure := func() {
		cpu := usage.UnknownCPU
		if u, ok := b.usage(); ok {
			// What its frames cost the host counts as its own time too.
			cpu, measured = u.CPU+b.conn.Work(), true
		}
		out.Own = x.clock.settle(time.Now(), cpu)
	}
	for {
		select {
		case <-running.Done():
			b.conclude(running, out)
			if measured {
				measure()
			} else {
				out.Own = x.clock.settle(time.Now(), usage.UnknownCPU)
			}
			return measured
		case <-ctx.Done():
			if ended(running) {
				continue
			}
			out.End, out.Stopped = Cancelled, stopped(ctx)
			b.terminate(ctx, config, running, x, out)
			return measured
		case <-timer.C:
		}
		measure()
		if ended(running) {
			continue
		}
		wall := time.Since(began)
		if out.Own >= timeout || wall >= config.WholeRun {
			out.End, out.Limit, out.Whole = TimedOut, timeout, false
			if out.Own < timeout {
				out.Limit, out.Whole = config.WholeRun, true
			}
			b.terminate(ctx, config, running, x, out)
			return measured
		}
		timer.Reset(max(time.Millisecond, min(sampleEvery, timeout-out.Own, config.WholeRun-wall)))
	}
}

// ended reports whether an execution ended by itself just when it was to be
// ended.
func ended(running *guest.Execution) bool {
	select {
	case <-running.Done():
		return true
	default:
		return false
	}
}

// conclude fills in how an execution ended that the host did not end.
func (b *instance) conclude(running *guest.Execution, out *Outcome) {
	result, err := running.Result()
	if err != nil {
		out.End = Died
		exit := b.exit()
		out.Reason = b.describeExit(exit)
		if exit.Reason == sandbox.OutOfMemory {
			// The guest and the engine report this differently; use the signal
			// that the kernel would have ended a process with.
			out.OutOfMemory, out.Known, out.ExitCode = true, true, 128+int(syscall.SIGKILL)
			return
		}
		var died *guest.Died
		if errors.As(err, &died) && died.Known {
			out.Known, out.ExitCode = true, died.Code
			if died.Signal != 0 {
				out.ExitCode = 128 + died.Signal
			}
		}
		return
	}
	b.left(result, out)
	out.ExitCode, out.Known = result.ExitCode, true
	switch result.Status {
	case wire.StatusOK:
		out.End, out.ExitCode = Finished, 0
	case wire.StatusExit:
		out.End = Exited
	default:
		out.End, out.ExitCode = Raised, max(1, out.ExitCode)
	}
}

// left records what an execution leaves in its sandbox.
func (b *instance) left(result wire.Done, out *Outcome) {
	out.Artifacts, out.MoreArtifacts, out.Error = result.Artifacts, result.ArtifactsTruncated, result.Error
	if result.Background != b.background {
		out.Background = result.Background
	}
	b.background, b.running = result.Background, result.Running
}

// terminate ends an execution for the reason in out.End: it interrupts the
// code, waits for the grace period, and then destroys the sandbox.
func (b *instance) terminate(ctx context.Context, config config, running *guest.Execution, x *execution, out *Outcome) {
	x.out.Abandon()
	why := "the code did not end when it was cancelled"
	switch {
	case stopped(ctx):
		why = "its caller no longer waits for the answer"
	case out.End == TimedOut:
		why = "the code did not end when its time was up"
	}
	if !stopped(ctx) && b.interrupter != nil && b.interrupt(ctx, config.Grace, running) {
		result, err := running.Result()
		if err != nil {
			out.Reason = b.deathReason()
			return
		}
		out.Survived = true
		b.left(result, out)
		return
	}
	out.Reason = "the sandbox was killed: " + why
	b.destroy()
	<-running.Done()
}

// interrupt asks code to end and reports whether it did within the grace
// period. It asks again halfway through, because the first interrupt may have
// come before the guest started the code, or the code may have caught it. It
// also ends the calls then: their requests may fill the memory that the guest's
// answer needs.
func (b *instance) interrupt(ctx context.Context, grace time.Duration, running *guest.Execution) bool {
	over := time.NewTimer(grace)
	defer over.Stop()
	again := time.NewTimer(grace / 2)
	defer again.Stop()
	for {
		interruptCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		err := b.interrupter.Interrupt(interruptCtx)
		cancel()
		if err != nil {
			b.log.Warn("interrupting code failed", "error", err)
			return ended(running)
		}
		select {
		case <-running.Done():
			return true
		case <-over.C:
			return false
		case <-b.life:
			return false
		case <-again.C:
			running.EndCalls()
		}
	}
}

// stopped reports whether ctx was cancelled with ErrStop.
func stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrStop) }
