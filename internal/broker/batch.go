package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/runs"
	"sallyport/internal/sandbox"
)

// cancelTimeout bounds how long the end of a run is waited for that its caller
// gave up.
const cancelTimeout = 20 * time.Second

// inFlight are requests that end when the broker is closed, which waits for them:
// a run that was handed over is cancelled first.
type inFlight struct {
	life context.Context
	end  context.CancelFunc
	mu   sync.Mutex // guards entering against closing
	all  sync.WaitGroup
}

func newInFlight() *inFlight {
	f := &inFlight{}
	f.life, f.end = context.WithCancel(context.Background())
	return f
}

// enter returns a context that ends with the broker, too. done must be called.
func (f *inFlight) enter(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(f.life, cancel)
	f.mu.Lock()
	f.all.Add(1)
	f.mu.Unlock()
	return ctx, func() {
		stop()
		cancel()
		f.all.Done()
	}
}

func (f *inFlight) close() {
	f.end()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.Wait()
}

// refuseBatch is the answer to a request that no engine without a channel can
// fulfil, before anything is started; nil where there is nothing to refuse.
func (b *Broker) refuseBatch(req Request) *Result {
	switch {
	case b.config.Runs == nil:
		return failure(errors.New("runs of batch engines need a place for their records, and there is none"))
	case len(req.Servers) > 0:
		return invalid(fmt.Sprintf("engine %s runs code far from here: it cannot use MCP servers. Leave 'servers' out, or fetch what the code needs first and pass it on in the code", req.Backend))
	case req.Session != "":
		return invalid(fmt.Sprintf("engine %s keeps nothing between calls: leave 'session' out", req.Backend))
	case len(req.Args) > 0 && !req.Script:
		return invalid(fmt.Sprintf("engine %s takes arguments only for a file", req.Backend))
	case req.Stdin != nil:
		return invalid(fmt.Sprintf("engine %s runs code far from here: standard input does not reach it. Send data along as a file", req.Backend))
	}
	return nil
}

// Backends are the names of the engines that code can be run on, the broker's
// own first.
func (b *Broker) Backends() []string {
	var names []string
	if b.config.Backend != nil {
		names = append(names, b.config.Backend.Name())
	}
	return append(names, slices.Sorted(maps.Keys(b.config.Batch))...)
}

func (b *Broker) noBackend(name string) string {
	return fmt.Sprintf("there is no engine %q here: there is %s (others are allowed by the setting `backends`)", name, strings.Join(b.Backends(), ", "))
}

// batch runs a request on an engine without a channel, from the hand-over to
// the files that came back.
func (b *Broker) batch(ctx context.Context, req Request, engine sandbox.Backend) *Result {
	if err := b.clearBatch(ctx, engine); err != nil {
		return failure(err)
	}
	spec := b.batchSpec(req)
	if req.OnStatus != nil { // where a machine has to wake first, this takes long
		req.OnStatus("handing the program over to " + req.Backend)
	}
	job, err := b.config.Runs.Start(ctx, req.Backend, spec, runs.Options{Program: req.Filename, Detached: req.Batch.Detach})
	if err != nil {
		if ctx.Err() != nil {
			return &Result{Status: Failed, Summary: "Cancelled before the code ran", Error: "Cancelled before the code ran"}
		}
		return failure(err)
	}
	defer job.Close()
	if req.Batch.Detach {
		return &Result{
			Status: Success, Summary: "The run was handed over to " + req.Backend, Run: job.ID(),
			Notes: []string{"`sallyport runs wait " + job.ID() + "` brings its result"},
		}
	}
	if req.OnStatus != nil {
		req.OnStatus("run " + job.ID() + " was handed over to " + req.Backend)
	}
	live := &relay{req: req}
	record, err := job.Wait(ctx, live.progress)
	if err != nil {
		return b.givenUp(ctx, job, err)
	}
	r := b.batchResult(record, spec)
	if req.OnOutput != nil {
		b.finishOutput(record, live, r)
	}
	return r
}

func (b *Broker) batchSpec(req Request) sandbox.Spec {
	spec := sandbox.Spec{
		Owner: "batch", Limits: b.config.BatchLimits, Files: req.Files, Code: req.Code,
		Batch: sandbox.Batch{
			Filename: req.Filename, Script: req.Script, Args: req.Args, Timeout: req.Timeout, Queue: b.config.Queue,
			Accelerator: req.Batch.Accelerator, Datasets: req.Batch.Datasets, Keep: req.Batch.Keep,
			MinIsolation: b.config.Policy.Remote.MinIsolation, Require: b.config.Policy.Remote.Require,
		},
	}
	if req.Batch.Internet {
		spec.Network = sandbox.NetworkInternet
	}
	return spec
}

func (b *Broker) batchTimeout(asked time.Duration) time.Duration {
	if asked == 0 {
		asked = b.config.BatchTimeout
	}
	return max(time.Second, min(asked, b.config.BatchMaxTimeout))
}

// relay passes on how a run goes, and remembers how much of the output it was.
type relay struct {
	req  Request
	seen [2]passed // by Stream
}

// passed is what was passed on of a stream: how much, and what.
type passed struct {
	bytes int
	sum   maphash.Hash
}

func (l *relay) progress(p sandbox.Progress) {
	if p.State != "" && l.req.OnStatus != nil {
		l.req.OnStatus(p.State)
	}
	if l.req.OnOutput != nil {
		l.output(Stdout, p.Stdout)
		l.output(Stderr, p.Stderr)
	}
}

func (l *relay) output(stream Stream, data []byte) {
	if len(data) == 0 {
		return
	}
	l.seen[stream].bytes += len(data)
	_, _ = l.seen[stream].sum.Write(data) // never fails
	l.req.OnOutput(stream, data)
}

// begins says whether all begins with what was passed on.
func (p *passed) begins(all []byte) bool {
	if p.bytes == 0 || p.bytes > len(all) {
		return p.bytes == 0
	}
	return maphash.Bytes(p.sum.Seed(), all[:p.bytes]) == p.sum.Sum64()
}

// finishOutput passes on what a service told only at the end.
func (b *Broker) finishOutput(record *runs.Record, live *relay, r *Result) {
	for _, stream := range []Stream{Stdout, Stderr} {
		all, err := b.output(record.ID, stream == Stderr)
		seen := &live.seen[stream]
		switch {
		case err != nil:
			b.log.Warn("the output of a run", "run", record.ID, "error", err)
		case !seen.begins(all):
			r.Notes = append(r.Notes, fmt.Sprintf("what was shown of %s while the code ran is not what came back in the end: `sallyport runs fetch %s` has that", stream, record.ID))
		case len(all) > seen.bytes:
			live.req.OnOutput(stream, all[seen.bytes:])
		}
	}
}

// givenUp is the result of a run whose end was not seen: it is cancelled where
// its caller gave up, and its service can do that.
func (b *Broker) givenUp(ctx context.Context, job *runs.Job, err error) *Result {
	r := failure(err)
	r.Run = job.ID()
	again := "`sallyport runs wait " + job.ID() + "` brings its result"
	if ctx.Err() == nil { // not the caller: it may come to a good end
		r.Notes = append(r.Notes, "the run may go on: "+again)
		if err := job.Detach(); err != nil {
			b.log.Warn("a run that goes on", "run", job.ID(), "error", err)
		}
		return r
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	r.Error = "Cancelled by the client; the run was cancelled too"
	switch err := job.Cancel(ending); {
	case errors.Is(err, sandbox.ErrUnsupported):
		if err := job.Detach(); err != nil {
			b.log.Warn("a run that goes on", "run", job.ID(), "error", err)
		}
		r.Error = "Cancelled by the client; the run goes on: " + text(err)
		r.Notes = append(r.Notes, again)
	case err != nil:
		r.Error = "Cancelled by the client; the run could not be cancelled: " + err.Error()
		r.Notes = append(r.Notes, "cancel it with `sallyport runs cancel "+job.ID()+"`")
	default:
		// So that the record says how it ended.
		if _, err := job.Wait(ending, nil); err != nil {
			b.log.Info("a cancelled run has not ended yet", "run", job.ID(), "error", err)
		}
	}
	r.Summary = r.Error
	return r
}

// text is an engine's error without the engine's name before it.
func text(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// batchResult is the result of a run that has ended.
func (b *Broker) batchResult(record *runs.Record, spec sandbox.Spec) *Result {
	out := record.Result
	r := &Result{Run: record.ID, QueuedMs: int64(out.QueuedSeconds * 1000), Ran: time.Duration(out.RanSeconds * float64(time.Second)), Notes: out.Notes}
	limit := b.config.Spec.Limits.WithDefaults().OutputBytes
	var cut Truncated
	r.Stdout, cut.Stdout = b.kept(record.ID, false, limit)
	r.Stderr, cut.Stderr = b.kept(record.ID, true, limit)
	cut.Stdout += out.StdoutOmitted
	cut.Stderr += out.StderrOmitted
	if cut != (Truncated{}) {
		r.Truncated = &cut
		r.Notes = append(r.Notes, "`sallyport runs fetch "+record.ID+"` has all of the output that came back")
	}
	if out.CPUSeconds > 0 || out.PeakMemoryBytes > 0 {
		r.Usage = &Usage{PeakMemoryBytes: out.PeakMemoryBytes}
		if out.CPUSeconds > 0 {
			r.Usage.CPUSeconds = &out.CPUSeconds
		}
	}
	if b.config.Accountant != nil {
		if footprint := b.config.Accountant.Ran(record); footprint != nil {
			if r.Usage == nil {
				r.Usage = &Usage{}
			}
			r.Usage.Footprint, r.ShowUsage = footprint, b.config.ShowUsage
		}
	}
	for _, f := range record.Files {
		r.Artifacts = append(r.Artifacts, Artifact{Path: f.Path, Size: f.Size, URI: runs.URI(record.ID, f.Path)})
	}
	r.Images = b.images(record)
	if record.Trouble != "" {
		r.Notes = append(r.Notes, record.Trouble+"; `sallyport runs fetch "+record.ID+"` tries again")
	}
	code := out.ExitCode
	switch out.End {
	case sandbox.BatchExited:
		r.ExitCode = &code
		if code == 0 {
			r.Status, r.Summary = Success, success(r)
			break
		}
		r.Status = Failed
		r.Error = fmt.Sprintf("The code exited with status %d", code)
		if what := lastLine(r.Stderr); what != "" && code == 1 {
			r.Error = "Uncaught exception: " + what
		}
	case sandbox.BatchTimedOut:
		r.Status, r.TimeoutSeconds = Timeout, spec.Batch.Timeout.Seconds()
		r.Error = out.Error
		if r.Error == "" {
			r.Error = "Execution timed out after " + seconds(spec.Batch.Timeout)
		}
	default:
		r.Status, r.Error = Failed, out.Error
		if r.Error == "" {
			r.Error = "the run ended without a result: " + string(out.End)
		}
	}
	if r.Summary == "" {
		r.Summary = r.Error
	}
	return r
}

// clearBatch answers whether code may be sent to a batch engine. A yes is
// remembered. What the policy demands of the place travels with the run.
func (b *Broker) clearBatch(ctx context.Context, engine sandbox.Backend) error {
	b.mu.Lock()
	known := b.usable[engine.Name()]
	b.mu.Unlock()
	if known {
		return nil
	}
	const probeTimeout = 2 * time.Minute // a place that sleeps has to wake first
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	found, err := engine.Probe(ctx)
	if err != nil {
		return err
	}
	if !found.Usable {
		return unusable(found)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.usable == nil {
		b.usable = map[string]bool{}
	}
	b.usable[engine.Name()] = true
	return nil
}
