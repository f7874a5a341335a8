package broker

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// cancelTimeout bounds the wait for the end of a run that its caller gave up.
const cancelTimeout = 20 * time.Second

// batchRuns sends requests to batch services and makes results of their runs.
type batchRuns struct {
	BatchConfig
	config Config
	log    *slog.Logger

	life context.Context // ends with the broker
	end  context.CancelFunc

	mu     sync.Mutex // guards entering against closing
	active sync.WaitGroup

	usable sync.Map // names of the services that were probed and can be used
}

func newBatchRuns(config Config) *batchRuns {
	b := &batchRuns{BatchConfig: config.Batch, config: config, log: config.Logger}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// close cancels the runs that are waited for, and waits until they have ended.
func (b *batchRuns) close() {
	b.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active.Wait()
}

// enter returns a context that also ends with the broker. The caller calls done.
func (b *batchRuns) enter(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.life, cancel)
	b.mu.Lock()
	b.active.Add(1)
	b.mu.Unlock()
	return ctx, func() {
		stop()
		cancel()
		b.active.Done()
	}
}

// refuse returns the answer to a request that no batch service can fulfil; nil
// if there is nothing to refuse. It starts nothing.
func (b *batchRuns) refuse(req *Request) *Result {
	switch {
	case b.Runs == nil:
		return failure(errors.New("runs of batch services need a directory for their records, and none is configured"))
	case len(req.Servers) > 0:
		return invalid(fmt.Sprintf("batch service %s has no connection to this machine: it cannot use MCP servers. Leave 'servers' out, or fetch what the code needs first and pass it in the code", req.Backend))
	case req.Session != "":
		return invalid(fmt.Sprintf("batch service %s keeps nothing between calls: leave 'session' out", req.Backend))
	case req.Env != "":
		return invalid(fmt.Sprintf("batch service %s has its own packages: leave 'env' out", req.Backend))
	case len(req.Mounts) > 0 && req.Shown: // a client shows its folders to every session
		return invalid("a batch service sees no folder of this computer: send files along with --file")
	case len(req.Args) > 0 && !req.Script:
		return invalid(fmt.Sprintf("batch service %s takes arguments only for a file", req.Backend))
	case req.Stdin != nil:
		return invalid(fmt.Sprintf("batch service %s has no connection to this machine: standard input does not reach it. Send data along as a file", req.Backend))
	}
	return nil
}

// run submits a request to a service, waits for its end and returns the result.
func (b *batchRuns) run(ctx context.Context, req *Request, service batch.Service) *Result {
	ctx, done := b.enter(ctx)
	defer done()
	if err := b.admit(ctx, service); err != nil {
		return failure(err)
	}
	permit, err := b.config.Gate.Admit(ctx, req.Principal, authz.RunBatch{Service: req.Backend})
	if err != nil {
		return failure(err)
	}
	r := b.permitted(ctx, req)
	if len(req.Mounts) > 0 {
		r.Notes = append(r.Notes, "the code ran at "+req.Backend+", which sees no folder of this computer")
	}
	permit.Done(0, r.failure())
	return r
}

// permitted runs what the gate has allowed.
func (b *batchRuns) permitted(ctx context.Context, req *Request) *Result {
	if req.OnStatus != nil { // this takes long where a machine has to wake first
		req.OnStatus("submitting the program to " + req.Backend)
	}
	publishBegan(b.config.Journal, req)
	detach := req.Batch != nil && req.Batch.Detach
	follower, err := b.Runs.Start(ctx, req.Backend, b.job(req), runs.Options{Program: req.Filename, Detached: detach, Client: req.Principal.Client})
	if err != nil {
		if ctx.Err() != nil {
			return &Result{Status: Failed, Summary: "Cancelled before the code ran", Error: "Cancelled before the code ran"}
		}
		return failure(err)
	}
	defer follower.Close()
	req.client.began(follower.ID())
	if detach {
		return &Result{
			Status: Success, Summary: "The run was submitted to " + req.Backend, Run: follower.ID(),
			Notes: []string{"get its result with `sallyport runs wait " + follower.ID() + "`"},
		}
	}
	if req.OnStatus != nil {
		req.OnStatus("run " + follower.ID() + " was submitted to " + req.Backend)
	}
	live := &relay{req: req}
	record, err := follower.Wait(ctx, live.progress)
	if err != nil {
		return b.givenUp(ctx, follower, err)
	}
	r := b.result(record, req.Timeout)
	r.ShowUsage = req.client.ShowUsage && r.Usage != nil && r.Usage.Footprint != nil
	if req.OnOutput != nil {
		b.finishOutput(record, live, r)
	}
	return r
}

// job returns what a request asks a service to run.
func (b *batchRuns) job(req *Request) batch.Job {
	remote := b.config.Gate.Remote()
	job := batch.Job{
		Code: req.Code, Filename: req.Filename, Script: req.Script, Args: req.Args, Files: req.Files,
		Limits: b.Limits, Timeout: req.Timeout, Queue: b.Queue,
		MinIsolation: remote.MinIsolation, Require: remote.Require,
	}
	if o := req.Batch; o != nil {
		job.Accelerator, job.Datasets, job.Internet, job.Keep = o.Accelerator, o.Datasets, o.Internet, o.Keep
	}
	return job
}

// timeout returns the time limit of a run.
func (b *batchRuns) timeout(asked time.Duration) time.Duration {
	if asked == 0 {
		asked = b.Timeout
	}
	return max(time.Second, min(asked, b.MaxTimeout))
}

// relay passes on the progress of a run, and remembers how much output that was.
type relay struct {
	req  *Request
	seen [wire.Streams]passed
}

// passed is what was passed on of a stream: its length and a hash.
type passed struct {
	bytes int
	sum   maphash.Hash
}

func (l *relay) progress(p batch.Progress) {
	if p.State != "" && l.req.OnStatus != nil {
		l.req.OnStatus(p.State)
	}
	if l.req.OnOutput != nil {
		l.output(wire.Stdout, p.Stdout)
		l.output(wire.Stderr, p.Stderr)
	}
}

func (l *relay) output(stream wire.Stream, data []byte) {
	if len(data) == 0 {
		return
	}
	l.seen[stream].bytes += len(data)
	_, _ = l.seen[stream].sum.Write(data) // never fails
	l.req.OnOutput(stream, data)
}

// begins reports whether all begins with what was passed on.
func (p *passed) begins(all []byte) bool {
	if p.bytes == 0 || p.bytes > len(all) {
		return p.bytes == 0
	}
	return maphash.Bytes(p.sum.Seed(), all[:p.bytes]) == p.sum.Sum64()
}

// finishOutput passes on the output that a service returned only at the end.
func (b *batchRuns) finishOutput(record *runs.Record, live *relay, r *Result) {
	for _, stream := range []wire.Stream{wire.Stdout, wire.Stderr} {
		all, err := b.output(record.ID, stream == wire.Stderr)
		seen := &live.seen[stream]
		switch {
		case err != nil:
			b.log.Warn("reading the output of a run", "run", record.ID, "error", err)
		case !seen.begins(all):
			r.Notes = append(r.Notes, fmt.Sprintf("the %s shown while the code ran differs from what came back at the end; get that with `sallyport runs fetch %s`", stream, record.ID))
		case len(all) > seen.bytes:
			live.req.OnOutput(stream, all[seen.bytes:])
		}
	}
}

// givenUp returns the result of a run whose end was not seen. It cancels the run
// if the caller gave up and the service can do that.
func (b *batchRuns) givenUp(ctx context.Context, follower *runs.Follower, err error) *Result {
	r := failure(err)
	r.Run = follower.ID()
	again := "get its result with `sallyport runs wait " + follower.ID() + "`"
	if ctx.Err() == nil { // the caller still waits: the run may end well
		r.Notes = append(r.Notes, "the run may go on: "+again)
		if err := follower.Detach(); err != nil {
			b.log.Warn("detaching a run", "run", follower.ID(), "error", err)
		}
		return r
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	r.Error = "Cancelled by the client; the run was cancelled too"
	switch err := follower.Cancel(ending); {
	case errors.Is(err, sandbox.ErrUnsupported):
		if err := follower.Detach(); err != nil {
			b.log.Warn("detaching a run", "run", follower.ID(), "error", err)
		}
		r.Error = "Cancelled by the client; the run goes on: " + withoutName(err)
		r.Notes = append(r.Notes, again)
	case err != nil:
		r.Error = "Cancelled by the client; the run could not be cancelled: " + err.Error()
		r.Notes = append(r.Notes, "cancel it with `sallyport runs cancel "+follower.ID()+"`")
	default:
		// Wait, so that the record shows how the run ended.
		if _, err := follower.Wait(ending, nil); err != nil {
			b.log.Info("a cancelled run has not ended yet", "run", follower.ID(), "error", err)
		}
	}
	r.Summary = r.Error
	return r
}

// withoutName returns the message of an error without the service's name.
func withoutName(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// result returns the result of a run that has ended.
func (b *batchRuns) result(record *runs.Record, timeout time.Duration) *Result {
	out := record.Result
	r := &Result{Run: record.ID, QueuedMs: int64(out.QueuedSeconds * 1000), Ran: time.Duration(out.RanSeconds * float64(time.Second)), Notes: out.Notes}
	limit := b.config.limits().OutputBytes
	var cut Truncated
	r.Stdout, cut.Stdout = b.kept(record.ID, false, limit)
	r.Stderr, cut.Stderr = b.kept(record.ID, true, limit)
	cut.Stdout += out.StdoutOmitted
	cut.Stderr += out.StderrOmitted
	if cut != (Truncated{}) {
		r.Truncated = &cut
		r.Notes = append(r.Notes, "get all of the output that came back with `sallyport runs fetch "+record.ID+"`")
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
			r.Usage.Footprint = footprint
		}
	}
	for _, f := range record.Files {
		r.Artifacts = append(r.Artifacts, Artifact{Path: f.Path, Size: f.Size, URI: runs.URI(record.ID, f.Path)})
	}
	r.Images, r.Unshown = b.images(record)
	if record.Trouble != "" {
		r.Notes = append(r.Notes, record.Trouble+"; `sallyport runs fetch "+record.ID+"` tries again")
	}
	code := out.ExitCode
	switch out.End {
	case batch.Exited:
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
	case batch.TimedOut:
		r.Status, r.TimeoutSeconds = Timeout, timeout.Seconds()
		r.Error = out.Error
		if r.Error == "" {
			r.Error = "Execution timed out after " + seconds(timeout)
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

// admit reports whether code may be sent to a service. A yes is remembered. What
// the policy demands of the machine there is part of each job.
func (b *batchRuns) admit(ctx context.Context, service batch.Service) error {
	if _, usable := b.usable.Load(service.Name()); usable {
		return nil
	}
	const probeTimeout = 2 * time.Minute // a machine that sleeps has to wake first
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	report, err := service.Probe(ctx)
	if err != nil {
		return err
	}
	if !report.Usable {
		return unusable("the batch service "+service.Name()+" cannot be used", report)
	}
	b.usable.Store(service.Name(), true)
	return nil
}
