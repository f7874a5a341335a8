package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/runpod/job"
	"sallyport/internal/session"
	"sallyport/internal/wire"
)

// ExecutorConfig is what jobs are run with.
type ExecutorConfig struct {
	Backend sandbox.Backend // required; owned by the caller
	Report  *sandbox.Report // of Backend; required
	Logger  *slog.Logger    // required
	// Limits are those of jobs that ask for none.
	Limits sandbox.Limits
	// Timeout bounds a run that does not say how long it may take, MaxTimeout
	// every run.
	Timeout, MaxTimeout time.Duration
	Grace               time.Duration // of interrupted code
	StartTimeout        time.Duration
	// Sessions is how many named sessions are kept between jobs; 0: none.
	Sessions int
	// Internet: code may be given the network of the place.
	Internet bool
	// PlainFiles bounds the files that are sent back to a client that does not
	// say whether it wants them.
	PlainFiles int64
	// Name is this program and its version; Worker is RunPod's name for this
	// worker, and Region for the place.
	Name, Worker, Region string
	// Notes are said in every result.
	Notes []string
	Seen  *Seen // required
	GPU   *GPU  // nil: there is none
}

// Executor runs jobs. It is safe for concurrent use.
type Executor struct {
	config ExecutorConfig
	report *job.Report
	cpu    string

	mu   sync.Mutex
	kept []*keptSession // the one used last at the end
}

// keptSession is a named session, and what it was made with.
type keptSession struct {
	owner   string // the Sallyport that asked for it
	name    string
	made    string
	session *session.Session
	busy    int
}

// NewExecutor returns an executor. It starts nothing.
func NewExecutor(c ExecutorConfig) (*Executor, error) {
	if c.Backend == nil || c.Report == nil || c.Logger == nil || c.Seen == nil {
		return nil, errors.New("worker: a backend, its report, a logger and a store of what was seen are required")
	}
	e := &Executor{config: c, report: job.FromReport(c.Report), cpu: cpuModel()}
	e.report.Streams, e.report.Internet = true, c.Internet
	if c.GPU != nil {
		e.report.GPU = c.GPU.String()
	}
	return e, nil
}

// Close ends the sessions that are kept.
func (e *Executor) Close() {
	e.mu.Lock()
	kept := e.kept
	e.kept = nil
	e.mu.Unlock()
	for _, k := range kept {
		k.session.Close()
	}
}

// A Job is what the service gives a worker.
type Job struct {
	ID    string          `json:"id"`
	Input json.RawMessage `json:"input"`
}

// Result is what a job came to. Error is the job's failure as RunPod counts
// it; code that failed is an Output.
type Result struct {
	Output *job.Output `json:"output,omitempty"`
	Error  string      `json:"error,omitempty"`
	// Stopped: the service has ended the job, and wants no result.
	Stopped bool `json:"-"`
}

// ErrStopped is the cause of a context whose job the service has ended.
var ErrStopped = errors.New("the job was stopped by the service")

// ErrShutdown is the cause of a context whose worker ends.
var ErrShutdown = errors.New("the worker is shutting down")

// Do runs a job and returns what to post. emit, which may be nil, is given the
// chunks of its stream, in order; it may wait. When ctx is done the code is
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
	r := e.run(ctx, j, &in, req, spec, out, plain, emit)
	e.config.Seen.End(j.ID, req.Run, r)
	return r
}

// refuse answers that nothing was run.
func (e *Executor) refuse(out *job.Output, plain bool, why string) Result {
	out.ReturnCode = -1
	out.Sallyport.End, out.Sallyport.Error = job.EndRefused, why
	return e.judged(out, plain)
}

// judged makes a result of an output. A client that does not know of ends
// reads them in the job's own error.
func (e *Executor) judged(out *job.Output, plain bool) Result {
	r := Result{Output: out}
	if plain && out.Sallyport.End != "" {
		r.Error = out.Sallyport.Error
	}
	return r
}

// lacks says what the request demands and this place does not have.
func (e *Executor) lacks(req *job.Request) string {
	if req.MinIsolation != "" {
		least, ok := job.ParseIsolation(req.MinIsolation)
		if !ok {
			return fmt.Sprintf("isolation %q is not known here", req.MinIsolation)
		}
		if has := e.config.Report.Isolation; has < least {
			return fmt.Sprintf("isolation %q is demanded; engine %s of this worker has %q", least, e.report.Engine, has)
		}
	}
	for name, word := range req.Require {
		least, ok := job.ParseEnforcement(word)
		if !ok {
			return fmt.Sprintf("enforcement %q of the limit on %s is not known here", word, name)
		}
		has := e.config.Report.Limits[sandbox.Resource(name)]
		if has.Enforcement < least {
			return fmt.Sprintf("a %s limit on %s is demanded; here it is %s (%s)", least, name, has.Enforcement, has.By)
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

// spec is the sandbox that the request asks for.
func (e *Executor) spec(req *job.Request) (sandbox.Spec, error) {
	asked := req.SandboxLimits()
	limits := merge(asked, e.config.Limits)
	limits.OutputBytes = min(limits.OutputBytes, syncRoom) // it is held in memory, and no more is taken
	spec := sandbox.Spec{ID: "check", Env: req.Env, Limits: limits}
	if req.Internet {
		spec.Network = sandbox.NetworkInternet
	}
	for _, f := range req.Files {
		spec.Files = append(spec.Files, sandbox.File{Path: f.Path, Data: f.Data, Mode: f.Mode & 0o777})
	}
	if err := checkSpec(&spec); err != nil {
		return spec, err
	}
	if asked.CPUs > 0 && e.config.Report.Limits[sandbox.CPU].Enforcement == sandbox.Absent {
		return spec, fmt.Errorf("a limit of %g processors is asked for, and engine %s cannot hold one here", asked.CPUs, e.report.Engine)
	}
	if e.config.Report.Limits[sandbox.CPU].Enforcement == sandbox.Absent {
		spec.Limits.CPUs = 0
	}
	return spec, nil
}

// merge fills what was not asked for.
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
		OpenFiles:      int(pick(int64(asked.OpenFiles), int64(otherwise.OpenFiles))),
		OutputBytes:    pick(asked.OutputBytes, otherwise.OutputBytes),
	}
	if l.CPUs == 0 {
		l.CPUs = otherwise.CPUs
	}
	return l
}

// timeout is how long the run may take, and a note where that is less than was
// asked for.
func (e *Executor) timeout(req *job.Request) (time.Duration, string) {
	t := req.Timeout()
	if t <= 0 {
		return min(e.config.Timeout, e.config.MaxTimeout), ""
	}
	if t > e.config.MaxTimeout {
		return e.config.MaxTimeout, fmt.Sprintf("%v were asked for; this worker lets code run for %v at most (worker.maxTimeout)", t, e.config.MaxTimeout)
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
	s, release, err := e.session(req, spec, timeout)
	if err != nil {
		return e.refuse(out, plain, err.Error())
	}
	defer release()
	wants := req.Output
	if wants == nil {
		wants = &job.Wanted{Files: plain && e.config.PlainFiles > 0, FileBytes: e.config.PlainFiles}
	}
	var sink func(session.Stream, []byte)
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
	o, err := s.Exec(ctx, s.Enter(), session.Request{
		Code: in.Program(), Filename: req.Filename, Args: req.Args,
		Script: plain || req.Script, Timeout: timeout, Files: spec.Files,
		Collect: &session.Collect{Choose: collected.choose}, Output: sink, Measure: true,
	})
	joules := watch.Stop()
	answer.RanMs = time.Since(began).Milliseconds()
	if err != nil {
		return e.neverRan(ctx, out, plain, err)
	}
	e.fill(out, o, &collected, joules)
	return e.ended(ctx, j, out, o, plain)
}

// neverRan is the result of a job whose code did not begin.
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

// fill puts into the output what the execution was.
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

// ended says how the code ended.
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

// session is a fresh one, or the one of that name.
func (e *Executor) session(req *job.Request, spec sandbox.Spec, timeout time.Duration) (*session.Session, func(), error) {
	config := session.Config{
		Backend: e.config.Backend, Logger: e.config.Logger, Grace: e.config.Grace, StartTimeout: e.config.StartTimeout,
		// The clock of the agent's own time ends a run; there are no calls
		// that it does not count.
		WholeRun: e.config.MaxTimeout + time.Minute,
		Spec:     sandbox.Spec{Env: spec.Env, Limits: spec.Limits, Network: spec.Network, Owner: "runpod"},
	}
	if req.Session == "" {
		s, err := session.New("job", config)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Close, nil
	}
	made, err := json.Marshal([]any{spec.Env, spec.Limits, spec.Network})
	if err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, k := range e.kept {
		if k.name != req.Session || k.owner != req.Owner {
			continue
		}
		if k.made != string(made) {
			return nil, nil, fmt.Errorf("session %q was made with other limits, environment or network: they cannot be changed", req.Session)
		}
		e.kept = append(append(e.kept[:i:i], e.kept[i+1:]...), k)
		k.busy++
		return k.session, e.unuse(k), nil
	}
	if len(e.kept) >= e.config.Sessions {
		if err := e.makeRoom(); err != nil {
			return nil, nil, err
		}
	}
	s, err := session.New(req.Session, config)
	if err != nil {
		return nil, nil, err
	}
	k := &keptSession{owner: req.Owner, name: req.Session, made: string(made), session: s, busy: 1}
	e.kept = append(e.kept, k)
	return s, e.unuse(k), nil
}

func (e *Executor) unuse(k *keptSession) func() {
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		k.busy--
	}
}

// makeRoom ends the session that was not used for longest. The mutex is held.
func (e *Executor) makeRoom() error {
	for i, k := range e.kept {
		if k.busy == 0 {
			e.kept = append(e.kept[:i:i], e.kept[i+1:]...)
			go k.session.Close()
			return nil
		}
	}
	return fmt.Errorf("all %d sessions that this worker keeps are at work", len(e.kept))
}

// text is what was kept of a stream.
func text(c session.Captured) string {
	s := c.Head
	if c.Omitted > 0 {
		s += fmt.Sprintf("\n[... %d bytes left out ...]\n%s", c.Omitted, c.Tail)
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// collector chooses the files that are sent back.
type collector struct {
	wants *job.Wanted
	room  int64
}

// maxCollected bounds the number of files that are sent back.
const maxCollected = 500

// choose names what fits, in the order in which the guest tells of it: the
// rest is said to be left out.
func (c *collector) choose(left []wire.Artifact) []wire.Artifact {
	if !c.wants.Files {
		return nil
	}
	room := min(c.wants.FileBytes, c.room*3/4) // base64
	var some []wire.Artifact
	for _, a := range left {
		if a.Size < 0 || a.Size > room || len(some) == maxCollected {
			continue
		}
		room -= a.Size
		some = append(some, a)
	}
	return some
}

func (c *collector) result(left []wire.Artifact, got []sandbox.File) (files []job.File, out []job.Omitted) {
	if !c.wants.Files {
		return nil, nil
	}
	have := map[string]bool{}
	for _, f := range got {
		have[f.Path] = true
		files = append(files, job.File{Path: f.Path, Data: f.Data, Mode: f.Mode})
	}
	for _, a := range left {
		if !have[a.Path] {
			out = append(out, job.Omitted{Path: a.Path, Size: a.Size})
		}
	}
	return files, out
}

// What RunPod takes as a result: less for jobs that nobody waits for on an open
// request. The difference to its own limits is for what surrounds the output.
const (
	asyncRoom = 10<<20 - 256<<10
	syncRoom  = 20<<20 - 256<<10
)

func room(id string) int64 {
	if strings.HasPrefix(id, "sync-") {
		return syncRoom
	}
	return asyncRoom
}

// fit leaves out files, and then output, until the result is taken.
func fit(r *Result, room int64) {
	for {
		b, err := json.Marshal(r)
		if err != nil || int64(len(b)) <= room || r.Output == nil {
			return
		}
		a := r.Output.Sallyport
		if n := len(a.Files); n > 0 {
			f := a.Files[n-1]
			a.Files = a.Files[:n-1]
			a.LeftOut = append(a.LeftOut, job.Omitted{Path: f.Path, Size: int64(len(f.Data))})
			continue
		}
		if a.Truncated == nil {
			a.Truncated = &job.Truncated{}
		}
		longest, cut := &r.Output.Stdout, &a.Truncated.Stdout
		if len(r.Output.Stderr) > len(*longest) {
			longest, cut = &r.Output.Stderr, &a.Truncated.Stderr
		}
		half := len(*longest) / 2
		if half == 0 {
			return
		}
		*cut += int64(len(*longest) - half)
		*longest = strings.ToValidUTF8((*longest)[:half], "")
	}
}
