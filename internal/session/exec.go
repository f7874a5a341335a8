package session

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/wire"
)

// sampleEvery is how often a running execution's processor time is measured.
const sampleEvery = 100 * time.Millisecond

// usageAfter is how long an execution runs before its usage is worth telling.
const usageAfter = time.Second

// errNotStarted: the guest was dead before it was given the code.
var errNotStarted = errors.New("the sandbox ended before the code was sent")

// execution is one run of code in a box. It is the guest's handler.
type execution struct {
	req   Request
	out   *output
	clock *ownTime
	stop  context.Context // done: calls are of no use any more
	stdin *input          // nil: there is none

	book   *book
	number uint64 // in it
}

// Output implements guest.Handler.
func (x *execution) Output(s guest.Stream, p []byte) {
	stream := streamOf(s)
	x.out.write(stream, p)
	x.book.output(x.number, stream, p)
}

func streamOf(s guest.Stream) Stream {
	if s == guest.Stderr {
		return Stderr
	}
	return Stdout
}

// Call implements guest.Handler.
func (x *execution) Call(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	if x.stdin != nil && call.Method == wire.MethodStdin {
		return x.read(ctx, call)
	}
	if x.req.Call == nil {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "Unknown RPC type: " + clip(call.Method)}
	}
	x.clock.callBegins()
	defer x.clock.callEnds()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.stop, cancel)()
	return x.req.Call(ctx, call)
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100]
	}
	return s
}

// exec runs one execution to its end. The error is errNotStarted, or that the
// request cannot be sent at all.
func (b *box) exec(ctx context.Context, config Config, req Request, prep *Preparation) (*Outcome, error) {
	var out Outcome
	out.Stray, out.StrayOmitted = b.stray.take()
	calls, endCalls := context.WithCancel(context.Background())
	defer endCalls()
	x := &execution{
		req: req, out: newOutput(config.Spec.Limits.OutputBytes, b.budget.Output, req.Output),
		clock: newOwnTime(time.Now()), stop: calls,
		book: b.book.Load(), number: b.conn.Executions() + 1,
		stdin: newInput(req.Stdin),
	}
	x.book.begin(x.number, req.Code)
	running, err := b.conn.Start(b.frame(req, prep), x)
	if err != nil {
		if b.dead() || b.conn.Err() != nil {
			return nil, errNotStarted
		}
		return nil, err
	}
	b.told(prep)

	began := time.Now()
	spent := b.tally.begin(req.Spent)
	measured := b.wait(ctx, config, running, x, &out)
	endCalls()
	kept := x.out.close()
	out.Stdout, out.Stderr = kept[Stdout], kept[Stderr]
	b.collect(ctx, config, req, &out)
	out.Wall = time.Since(began)
	b.tally.end(spent)
	measured = measured && out.Wall >= usageAfter
	if !measured && req.Measure && !b.dead() {
		_, measured = b.usage()
	}
	if measured {
		if used := b.tally.spent(spent); used.CPU >= 0 {
			out.Usage = &used
		}
	}
	x.book.end(x.number, &out)
	return &out, nil
}

// frame is the request as the guest gets it: without what it knows already.
func (b *box) frame(req Request, prep *Preparation) guest.Exec {
	e := guest.Exec{Code: req.Code, Filename: req.Filename, Script: req.Script, Args: req.Args, Stdin: req.Stdin != nil, Grants: prep.Grants}
	if b.reseed {
		e.Reseed = entropy()
	}
	for _, d := range prep.Define {
		if version, ok := b.known[d.Name]; !ok || version != d.Version {
			e.Define = append(e.Define, d.Server)
		}
	}
	if prep.DiscoveredVersion != b.discovered {
		e.Discovered = prep.Discovered
	}
	return e
}

// told remembers what the guest knows now.
func (b *box) told(prep *Preparation) {
	for _, d := range prep.Define {
		b.known[d.Name] = d.Version
	}
	b.discovered = prep.DiscoveredVersion
	b.reseed = false
}

// wait follows an execution to its end, ends it when its time is up or its
// caller wants no more of it, and fills in the outcome. It says whether the
// sandbox was measured meanwhile.
func (b *box) wait(ctx context.Context, config Config, running *guest.Execution, x *execution, out *Outcome) (measured bool) {
	began := time.Now()
	timeout := x.req.Timeout
	timer := time.NewTimer(min(sampleEvery, timeout, config.WholeRun))
	defer timer.Stop()
	measure := func() {
		cpu := unknownCPU
		if u, ok := b.usage(); ok {
			// What its frames cost the host is its own time too.
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
				out.Own = x.clock.settle(time.Now(), unknownCPU)
			}
			return measured
		case <-ctx.Done():
			if ended(running) {
				continue
			}
			out.End = Cancelled
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

// ended says whether an execution came to its end by itself in the very moment
// in which it was to be ended.
func ended(running *guest.Execution) bool {
	select {
	case <-running.Done():
		return true
	default:
		return false
	}
}

// conclude fills in how an execution ended that we have not ended.
func (b *box) conclude(running *guest.Execution, out *Outcome) {
	result, err := running.Result()
	if err != nil {
		out.End = Died
		exit := b.exit()
		out.Reason = b.epitaph(exit)
		if exit.Reason == sandbox.OutOfMemory {
			// What the guest or the engine saw of it differs; the kernel's signal
			// is what a process would have ended by.
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

// left notes what an execution leaves in its sandbox.
func (b *box) left(result guest.Outcome, out *Outcome) {
	out.Artifacts, out.MoreArtifacts, out.Error = result.Artifacts, result.ArtifactsTruncated, result.Error
	if result.Background != b.background {
		out.Background = result.Background
	}
	b.background, b.running = result.Background, result.Running
}

// terminate ends an execution whose end out.End already says: an interrupt,
// a grace, and then the end of the sandbox.
func (b *box) terminate(ctx context.Context, config Config, running *guest.Execution, x *execution, out *Outcome) {
	x.out.abandon()
	why := "the code did not end when it was cancelled"
	switch {
	case stopped(ctx):
		why = "nobody waits for its answer any more"
	case out.End == TimedOut:
		why = "the code did not end when its time was up"
	}
	if !stopped(ctx) && b.interrupter != nil && b.interrupt(ctx, config.Grace, running) {
		result, err := running.Result()
		if err != nil {
			out.Reason = b.obituary()
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

// interrupt asks code to end and says whether it did within the grace. It asks
// once more in the middle of it: the first time may have come before the guest
// had begun with the code, or been caught by it. It also ends the calls then:
// their requests may take up the memory behind which the guest's answer waits.
func (b *box) interrupt(ctx context.Context, grace time.Duration, running *guest.Execution) bool {
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

// stopped says whether ctx was cancelled with ErrStop.
func stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrStop) }
