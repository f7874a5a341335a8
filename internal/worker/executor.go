package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/wire"
)

// ExecutorConfig configures an Executor.
type ExecutorConfig struct {
	Engine  sandbox.Engine   // required; owned by the caller
	Program *sandbox.Program // runs the code of jobs; required
	Report  *sandbox.Report  // of Engine; required
	Gate    *authz.Gate      // decides whether code may run in Engine; required
	Logger  *slog.Logger     // required
	// Limits are the limits of jobs that ask for none.
	Limits sandbox.Limits
	// Timeout bounds runs that set no timeout of their own; MaxTimeout bounds
	// every run.
	Timeout, MaxTimeout time.Duration
	Grace               time.Duration // for interrupted code
	StartTimeout        time.Duration
	// Sessions is how many named sessions are kept between jobs; 0: none.
	Sessions int
	// Internet: code may use the network of this machine.
	Internet bool
	// PlainFiles bounds the files that are sent back to a client that does not
	// specify whether it wants them.
	PlainFiles int64
	// Name is this program and its version; Worker and Region are RunPod's
	// names for this worker and its location.
	Name, Worker, Region string
	// Notes are included in every result.
	Notes []string
	Seen  *Seen // required
	GPU   *GPU  // nil: there is none
}

// maxQueued is how many jobs of an owner may wait for kept sessions that do not
// run.
const maxQueued = 256

// Executor runs jobs. It is safe for concurrent use.
type Executor struct {
	config ExecutorConfig
	report *job.Report
	cpu    string

	options session.Options // of all sessions
	kept    *session.Set    // the named ones
}

// gateClient is the client of all jobs at the gate: the service decides who may
// send jobs.
const gateClient = "runpod"

// NewExecutor returns an executor. It starts nothing. The error is the gate's if
// that would refuse every job.
func NewExecutor(c ExecutorConfig) (*Executor, error) {
	if c.Engine == nil || c.Program == nil || c.Report == nil || c.Gate == nil || c.Logger == nil || c.Seen == nil {
		return nil, errors.New("worker: an engine, its report, a gate, a program, a logger and a store of what was seen are required")
	}
	if d := c.Gate.Decide(authz.Local(gateClient), authz.RunCode{Engine: c.Report}); d.Effect == authz.Deny {
		return nil, d.Reason
	}
	e := &Executor{config: c, report: job.FromReport(c.Report), cpu: cpuModel()}
	e.report.Streams, e.report.Internet = true, c.Internet
	if c.GPU != nil {
		e.report.GPU = c.GPU.String()
	}
	e.options = session.Options{
		Logger: c.Logger, Grace: c.Grace, StartTimeout: c.StartTimeout,
		// The clock of the agent's own time ends a run; there are no calls
		// that it does not count.
		WholeRun:   c.MaxTimeout + time.Minute,
		MaxRunning: c.Sessions, MaxNamed: c.Sessions + maxQueued, Forget: true,
	}
	e.kept = session.NewSet(e.options)
	return e, nil
}

// Close ends the kept sessions.
func (e *Executor) Close() { e.kept.Close() }

// A Job is a job as the service delivers it.
type Job struct {
	ID    string          `json:"id"`
	Input json.RawMessage `json:"input"`
}

// Result is the result of a job. Error is a failure of the job itself, as
// RunPod counts failures; code that failed is an Output.
type Result struct {
	Output *job.Output `json:"output,omitempty"`
	Error  string      `json:"error,omitempty"`
	// Stopped: the service ended the job and expects no result.
	Stopped bool `json:"-"`
}

// ErrStopped is the cause of a context whose job the service has ended.
var ErrStopped = errors.New("the job was stopped by the service")

// ErrShutdown is the cause of a context whose worker is shutting down.
var ErrShutdown = errors.New("the worker is shutting down")

// Do runs a job and returns what to post. emit, which may be nil, receives the
// chunks of its stream, in order; it may block. When ctx is done the code is
// ended.
func (e *Executor) Do(ctx context.Context, j Job, emit func(job.Chunk)) Result {
	var in job.Input
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return Result{Error: fmt.Sprintf("the job's input is not what this worker takes, {\"code\": \"…\"}: %v", err)}
	}
	req := in.Sallyport
	if req == nil {
		req = &job.Request{}
	}
	plain := in.Sallyport == nil
	answer := &job.Answer{Version: job.Version, Worker: e.config.Name, Run: req.Run, Report: e.report, Notes: e.config.Notes}
	out := &job.Output{Sallyport: answer}
	if req.Version > job.Version || req.Version < 0 {
		return e.refuse(out, plain, fmt.Sprintf("this worker (%s) does not know version %d of requests: update its image", e.config.Name, req.Version))
	}
	if req.Probe != 0 {
		return Result{Output: out}
	}
	if strings.TrimSpace(in.Program()) == "" {
		return e.refuse(out, plain, "no code: the input needs {\"code\": \"…\"}")
	}
	if why := e.lacks(req); why != "" {
		return e.refuse(out, plain, why)
	}
	spec, err := e.spec(req)
	if err != nil {
		return e.refuse(out, plain, err.Error())
	}
	principal := authz.Local(gateClient)
	principal.Session, principal.Request = req.Session, j.ID
	permit, err := e.config.Gate.Admit(ctx, principal, authz.RunCode{Engine: e.config.Report})
	if err != nil {
		return e.refuse(out, plain, err.Error())
	}
	r := e.permitted(ctx, j, &in, req, spec, out, plain, emit)
	permit.Done(0, failure(r))
	return r
}

// failure is the kind of a job's failure, for observers of the gate.
func failure(r Result) string {
	if r.Output == nil || r.Output.Sallyport == nil {
		return job.EndFailed
	}
	return r.Output.Sallyport.End
}

// permitted runs a job that the gate has allowed, unless it was run before.
func (e *Executor) permitted(ctx context.Context, j Job, in *job.Input, req *job.Request, spec sandbox.Spec, out *job.Output, plain bool, emit func(job.Chunk)) Result {
	answer := out.Sallyport
	first, known, err := e.config.Seen.Begin(ctx, j.ID, req.Run)
	switch {
	case err != nil:
		return Result{Stopped: errors.Is(context.Cause(ctx), ErrStopped), Error: err.Error()}
	case !first && known != nil:
		e.config.Logger.Warn("a job was delivered again: its first result is given once more", "job", j.ID, "run", req.Run)
		again := *known
		if again.Output != nil && again.Output.Sallyport != nil {
			o, a := *again.Output, *again.Output.Sallyport
			a.Redelivered = true
			o.Sallyport = &a
			again.Output = &o
		}
		return again
	case !first:
		e.config.Logger.Warn("a job was delivered again: it was begun before, and how it ended is not known", "job", j.ID, "run", req.Run)
		answer.Redelivered = true
		answer.End = job.EndFailed
		answer.Error = "this worker had begun the run before, and how it ended is not known any more: it was not run a second time"
		out.ReturnCode = -1
		return e.judged(out, plain)
	}
	r := e.run(ctx, j, in, req, spec, out, plain, emit)
	e.config.Seen.End(j.ID, req.Run, r)
	return r
}

// refuse returns a result that tells why nothing was run.
func (e *Executor) refuse(out *job.Output, plain bool, why string) Result {
	out.ReturnCode = -1
	out.Sallyport.End, out.Sallyport.Error = job.EndRefused, why
	return e.judged(out, plain)
}

// judged converts an output to a result. For a client that does not know ends,
// a failure becomes the job's own error.
func (e *Executor) judged(out *job.Output, plain bool) Result {
	r := Result{Output: out}
	if plain && out.Sallyport.End != "" {
		r.Error = out.Sallyport.Error
	}
	return r
}

// lacks describes what the request demands and this worker does not have.
func (e *Executor) lacks(req *job.Request) string {
	if req.MinIsolation != "" {
		least, ok := job.ParseIsolation(req.MinIsolation)
		if !ok {
			return fmt.Sprintf("isolation %q is unknown", req.MinIsolation)
		}
		if has := e.config.Report.Isolation; has < least {
			return fmt.Sprintf("the request demands isolation %q; this worker's engine %s has %q", least, e.report.Engine, has)
		}
	}
	for name, word := range req.Require {
		least, ok := job.ParseEnforcement(word)
		if !ok {
			return fmt.Sprintf("enforcement %q of the limit on %s is unknown", word, name)
		}
		has := e.config.Report.Limits[sandbox.Resource(name)]
		if has.Enforcement < least {
			return fmt.Sprintf("the request demands a %s limit on %s; this worker's is %s (%s)", least, name, has.Enforcement, has.By)
		}
	}
	if req.Internet && !e.config.Internet {
		return "the network of the place is asked for, and this worker gives code none (worker.internet)"
	}
	if req.Session != "" && e.config.Sessions == 0 {
		return "a session is asked for, and this worker keeps none (worker.sessions)"
	}
	return ""
}

// spec returns the sandbox that the request asks for.
func (e *Executor) spec(req *job.Request) (sandbox.Spec, error) {
	asked := req.SandboxLimits()
	limits := merge(asked, e.config.Limits)
	limits.OutputBytes = min(limits.OutputBytes, syncRoom) // it is held in memory, and RunPod takes no more
	spec := sandbox.Spec{ID: "check", Env: req.Env, Limits: limits}
	if req.Internet {
		spec.Network.Internet = true
	}
	for _, f := range req.Files {
		spec.Files = append(spec.Files, sandbox.File{Path: f.Path, Data: f.Data, Mode: f.Mode & 0o777})
	}
	if err := checkSpec(&spec); err != nil {
		return spec, err
	}
	if asked.CPUs > 0 && e.config.Report.Limits[sandbox.CPU].Enforcement == sandbox.Absent {
		return spec, fmt.Errorf("the request limits the code to %g processors, and engine %s cannot enforce that here", asked.CPUs, e.report.Engine)
	}
	if e.config.Report.Limits[sandbox.CPU].Enforcement == sandbox.Absent {
		spec.Limits.CPUs = 0
	}
	return spec, nil
}

// merge fills in the fields that are not set.
func merge(asked, otherwise sandbox.Limits) sandbox.Limits {
	pick := func(a, b int64) int64 {
		if a != 0 {
			return a
		}
		return b
	}
	l := sandbox.Limits{
		MemoryBytes:    pick(asked.MemoryBytes, otherwise.MemoryBytes),
		Processes:      int(pick(int64(asked.Processes), int64(otherwise.Processes))),
		CPUs:           asked.CPUs,
		WorkspaceBytes: pick(asked.WorkspaceBytes, otherwise.WorkspaceBytes),
		TmpBytes:       pick(asked.TmpBytes, otherwise.TmpBytes),
		PackagesBytes:  pick(asked.PackagesBytes, otherwise.PackagesBytes),
		OpenFiles:      int(pick(int64(asked.OpenFiles), int64(otherwise.OpenFiles))),
		OutputBytes:    pick(asked.OutputBytes, otherwise.OutputBytes),
	}
	if l.CPUs == 0 {
		l.CPUs = otherwise.CPUs
	}
	return l
}

// timeout returns how long the run may take, and a note if that is less than
// requested.
func (e *Executor) timeout(req *job.Request) (time.Duration, string) {
	t := req.Timeout()
	if t <= 0 {
		return min(e.config.Timeout, e.config.MaxTimeout), ""
	}
	if t > e.config.MaxTimeout {
		return e.config.MaxTimeout, fmt.Sprintf("the request asks for %v; this worker lets code run for at most %v (worker.maxTimeout)", t, e.config.MaxTimeout)
	}
	return t, ""
}

// run runs the code and fills the output.
func (e *Executor) run(ctx context.Context, j Job, in *job.Input, req *job.Request, spec sandbox.Spec, out *job.Output, plain bool, emit func(job.Chunk)) Result {
	answer := out.Sallyport
	timeout, note := e.timeout(req)
	if note != "" {
		answer.Notes = append(append([]string{}, answer.Notes...), note)
	}
	s, ticket, release, err := e.enter(req, spec)
	if err != nil {
		return e.refuse(out, plain, err.Error())
	}
	defer release()
	wants := req.Output
	if wants == nil {
		wants = &job.Wanted{Files: plain && e.config.PlainFiles > 0, FileBytes: e.config.PlainFiles}
	}
	var sink func(wire.Stream, []byte)
	if emit != nil && wants.Stream {
		answer.Attempt = strings.ToLower(rand.Text())
		emit(job.Chunk{Started: &job.Started{Attempt: answer.Attempt, Worker: e.config.Worker}})
		st := newStreamer(spec.Limits.WithDefaults().OutputBytes, emit)
		defer st.close()
		sink = st.write
	}
	collected := collector{wants: wants, room: room(j.ID)}
	watch := e.config.GPU.Watch()
	began := time.Now()
	o, err := s.Exec(ctx, ticket, session.Request{
		Collect: collected.choose,
		Submission: session.Submission{
			Code:     in.Program(),
			Filename: req.Filename,
			Args:     req.Args,
			Script:   plain || req.Script,
			Timeout:  timeout,
			Files:    spec.Files,
			OnOutput: sink,
			Measure:  true,
		},
	})
	joules := watch.Stop()
	answer.RanMs = time.Since(began).Milliseconds()
	if errors.Is(err, session.ErrNoRoom) {
		return e.refuse(out, plain, fmt.Sprintf("all %d sessions that this worker may keep are in use", e.config.Sessions))
	}
	if err != nil {
		return e.neverRan(ctx, out, plain, err)
	}
	e.fill(out, o, &collected, joules)
	return e.ended(ctx, j, out, o, plain)
}

// neverRan returns the result of a job whose code did not start.
func (e *Executor) neverRan(ctx context.Context, out *job.Output, plain bool, err error) Result {
	out.ReturnCode = -1
	out.Sallyport.End, out.Sallyport.Error = job.EndFailed, "the sandbox failed: "+err.Error()
	if cause := context.Cause(ctx); cause != nil {
		out.Sallyport.End, out.Sallyport.Error = job.EndCancelled, "before the code ran: "+cause.Error()
	}
	r := e.judged(out, plain)
	r.Stopped = errors.Is(context.Cause(ctx), ErrStopped)
	return r
}

// fill puts the outcome of the execution into the output.
func (e *Executor) fill(out *job.Output, o *session.Outcome, c *collector, joules float64) {
	answer := out.Sallyport
	out.Stdout, out.Stderr = text(o.Stdout), text(o.Stderr)
	if o.Stdout.Omitted > 0 || o.Stderr.Omitted > 0 {
		answer.Truncated = &job.Truncated{Stdout: o.Stdout.Omitted, Stderr: o.Stderr.Omitted}
	}
	answer.RanMs = o.Wall.Milliseconds()
	answer.Usage = &job.Usage{CPUModel: e.cpu, Region: e.config.Region, GPUJoules: joules}
	if o.Usage != nil {
		answer.Usage.CPUSeconds, answer.Usage.PeakBytes = max(0, o.Usage.CPU.Seconds()), max(0, o.Usage.PeakBytes)
		if u := o.Usage; u.ByteSeconds > 0 && u.Wall > 0 {
			answer.Usage.MeanBytes = int64(u.ByteSeconds / u.Wall.Seconds())
		}
	}
	if g := e.config.GPU; g != nil {
		answer.Usage.GPUModel, answer.Usage.GPUs = g.Model, g.Count
	}
	answer.Files, answer.LeftOut = c.result(o.Artifacts, o.Collected)
	if o.Lost != "" {
		answer.Notes = append(append([]string{}, answer.Notes...), "variables of earlier jobs are gone: "+o.Lost)
	}
}

// ended describes how the code ended.
func (e *Executor) ended(ctx context.Context, j Job, out *job.Output, o *session.Outcome, plain bool) Result {
	answer := out.Sallyport
	out.ReturnCode = -1
	switch o.End {
	case session.Finished, session.Raised, session.Exited:
		out.ReturnCode = o.ExitCode
	case session.TimedOut:
		answer.End, answer.Error = job.EndTimedOut, fmt.Sprintf("the code was ended after %v", o.Limit)
	case session.Cancelled:
		answer.End, answer.Error = job.EndCancelled, "the run was cancelled"
		if cause := context.Cause(ctx); cause != nil {
			answer.Error = "the run was cancelled: " + cause.Error()
		}
	case session.Died:
		if o.Known {
			out.ReturnCode = o.ExitCode
		}
		answer.End, answer.Error = job.EndFailed, "the sandbox ended: "+o.Reason
	}
	r := e.judged(out, plain)
	r.Stopped = errors.Is(context.Cause(ctx), ErrStopped)
	fit(&r, room(j.ID))
	return r
}

// enter takes a place in the queue of the session of that name, or of a fresh
// one. Release is called when the execution has ended.
func (e *Executor) enter(req *job.Request, spec sandbox.Spec) (s *session.Session, t *session.Ticket, release func(), err error) {
	template := &session.Template{Engine: e.config.Engine, Program: e.config.Program, Env: spec.Env, Limits: spec.Limits, Network: spec.Network}
	if req.Session == "" {
		s, err := session.New(session.Key{Name: "job"}, e.options, template)
		if err != nil {
			return nil, nil, nil, err
		}
		return s, s.Enter(), s.Close, nil
	}
	s, t, err = e.kept.Enter(session.Key{Owner: req.Owner, Name: req.Session}, template)
	if errors.Is(err, session.ErrTemplate) {
		err = fmt.Errorf("session %q was made with other limits, environment or network: they cannot be changed", req.Session)
	}
	return s, t, func() {}, err
}
