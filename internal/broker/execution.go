package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/fold"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/tracecontext"
	"github.com/sallyport/sallyport/internal/wire"
)

// execution is one request that has its place in a session's queue.
type execution struct {
	broker  *Broker
	req     *Request
	session *session.Session
	ticket  *session.Ticket
	servers *bridge.Execution
	stage   atomic.Int32 // see activity
	intake  *intake      // nil: the code left no files, or Request.TakeFiles takes them
}

// The stages of an execution.
const (
	queued int32 = iota
	preparing
	starting
)

// activity says what the execution waits for, if it is not simply running code.
func (x *execution) activity() string {
	if what := x.broker.config.Gate.Waiting(x.req.RequestID); what != "" {
		return what
	}
	if what := x.servers.Activity(); what != "" {
		return what
	}
	switch {
	case x.req.partial.Started():
		return ""
	case x.stage.Load() == preparing:
		return Compiling
	case x.stage.Load() == starting:
		return "starting the sandbox"
	}
	if turn := x.req.turn.Turn(); turn != "" {
		return "waiting for its turn: " + turn
	}
	if ahead := x.session.Ahead(x.ticket); ahead > 1 {
		return fmt.Sprintf("waiting for earlier code of the session: %d executions are before it", ahead)
	}
	return "waiting for earlier code of the session"
}

// run waits for the turn, runs the code and returns its result.
func (x *execution) run(ctx context.Context) *Result {
	defer x.session.Leave(x.ticket) // whatever happens: others wait for their turn
	defer x.broker.config.Gate.Ended(x.req.RequestID)
	ctx, done := x.gently(tracecontext.With(ctx, x.req.Principal.Trace))
	defer done()
	permit, err := x.broker.admit(ctx, x.req.Principal, x.session.Engine(), x.session.Mounts())
	if err != nil {
		return x.broker.finish(x.req, unrun(ctx, err))
	}
	r := x.permitted(ctx)
	permit.Done(0, r.failure())
	return r
}

// gently returns a context that ends with ctx. If the client has gone, code in a
// session that others use too is interrupted, and not killed.
func (x *execution) gently(ctx context.Context) (_ context.Context, done func()) {
	if x.session.Key().Client != "" {
		return ctx, func() {}
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, ErrStop) {
			cause = errGone
		}
		cancel(cause)
	})
	return own, func() { stop(); cancel(nil) }
}

// permitted runs the code, which the gate has allowed.
func (x *execution) permitted(ctx context.Context) *Result {
	defer x.req.client.bridge.Busy()()
	pending := x.pendingUsage()
	what := x.req.Submission
	what.Measure = what.Measure || x.req.client.ShowUsage
	publishBegan(x.broker.config.Journal, x.req)
	defer x.close()
	if err := x.prepareEngine(ctx); err != nil {
		return x.broker.finish(x.req, unrun(ctx, err))
	}
	told := &session.Told{}
	x.servers.Hear(told.Add)
	out, err := x.session.Exec(ctx, x.ticket, session.Request{
		Submission: what,
		Prepare:    x.prepare,
		Call:       x.call,
		Told:       told,
		Partial:    x.req.partial,
		Collect:    x.collect,
		Place:      &x.req.turn,
		OnUsage:    pending.report(),
	})
	if err != nil {
		if errors.Is(err, sandbox.ErrUnavailable) {
			x.broker.reprobe(x.session.Engine()) // it is not as it was
		}
		return x.broker.finish(x.req, unrun(ctx, err))
	}
	x.req.engine = out.Engine // not the one that was expected if that failed to start
	r := x.broker.finish(x.req, x.result(ctx, out))
	r.Servers = x.servers.Granted() // with those that the code loaded itself
	r.Notes = append(append(r.Notes, x.req.notes...), x.servers.Notes()...)
	r.Notes = append(r.Notes, hintsFor(&hintFacts{
		out: out, asks: x.req.Timeout, most: x.broker.config.MaxTimeout,
		anew: func() bool { return x.req.client.reconnects(x.session.Key(), out) },
	})...)
	if mounts := x.session.Mounts(); out.Number == 1 && len(mounts) > 0 && !x.req.Shown {
		r.Notes = append(r.Notes, "folders of the user: "+strings.Join(folders(mounts), ", "))
	}
	if note := x.unkept(); note != "" {
		r.Notes = append(r.Notes, note)
	}
	r.ShowUsage = x.req.client.ShowUsage
	pending.answered(r)
	return r
}

// unkept says once of a named session that it ends with this program, where it
// does.
func (x *execution) unkept() string {
	key := x.session.Key()
	if key.Name == DefaultSession {
		return ""
	}
	err := x.session.Unkept()
	if err == nil {
		return ""
	}
	if !x.req.client.first(x.req.client.unkept, key) {
		return ""
	}
	return fmt.Sprintf("session %s ends with this program: %s", key.Name, err)
}

func (x *execution) call(ctx context.Context, call wire.Call) (answer []byte, err error) {
	defer x.broker.caught(x.req, &err)
	switch call.Method {
	case wire.MethodCancel:
		return x.cancelOther(call.Params)
	case wire.MethodSessionFacts:
		return json.Marshal(x.facts())
	case wire.MethodFolderFacts:
		return folderFacts(x.session.Mounts(), call.Params)
	case wire.MethodPackageFacts:
		return x.packageFacts(call.Params)
	case wire.MethodScriptHeader:
		return x.scriptHeader(call.Params)
	case wire.MethodOutput:
		return x.written(ctx, call.Params)
	}
	return x.servers.Call(ctx, call)
}

// written returns what an earlier execution of the session wrote.
func (x *execution) written(ctx context.Context, params json.RawMessage) ([]byte, error) {
	var p struct {
		Execution int64  `json:"execution"`
		Stream    string `json:"stream"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'execution' must be an integer, 'stream' a string"}
	}
	text, err := x.session.Written(ctx, p.Execution, p.Stream)
	if err != nil {
		return nil, &wire.CallError{Kind: wire.KindNotFound, Message: err.Error()}
	}
	return json.Marshal(text)
}

// errCancelledByCode is the cause of a context that runtime.cancel ended.
var errCancelledByCode = errors.New("cancelled by code in another session")

// cancelOther ends the code that runs in the background of another session of
// the same client and owner. The result is whether there was any.
func (x *execution) cancelOther(params json.RawMessage) ([]byte, error) {
	var p struct {
		Session string `json:"session"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "'session' must be a string"}
	}
	key := x.req.client.key(owner(x.req.Principal), p.Session)
	if key == x.session.Key() {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "a session cannot cancel its own code"}
	}
	found := x.broker.tasks.cancel(errCancelledByCode, func(t *task) bool { return t.place == place{session: key, client: x.req.client.id} })
	return strconv.AppendBool(nil, found), nil
}

// facts returns what code learns about its limits: those of its own session.
func (x *execution) facts() wire.SessionFacts {
	c, limits := &x.broker.config, x.session.Limits()
	its, all := x.environments()
	rule, _ := x.servers.PackageRule("")
	if rule == "none" {
		rule = ""
	}
	return wire.SessionFacts{
		Folders:     folders(x.session.Mounts()),
		Packages:    rule,
		Environment: its, Environments: all,
		Timeout: c.DefaultTimeout.Seconds(), MaxTimeout: c.MaxTimeout.Seconds(),
		Memory: limits.MemoryBytes, Workspace: limits.WorkspaceBytes, Output: limits.OutputBytes, Processes: limits.Processes,
	}
}

// prepare starts the granted servers.
func (x *execution) prepare(ctx context.Context) (_ *session.Preparation, err error) {
	defer x.broker.caught(x.req, &err)
	x.stage.Store(starting)
	definitions, err := x.servers.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	p := &session.Preparation{Grants: x.servers.Names(), Define: definitions}
	p.Discovered, p.DiscoveredVersion = x.req.client.bridge.Discovered()
	return p, nil
}

// CancelledBefore is the result of a request whose client cancelled it before its code
// ran.
func CancelledBefore() *Result {
	const what = "Cancelled before the code ran"
	return &Result{Status: Failed, Summary: what, Error: what}
}

// unrun is the result of a request whose code never ran.
func unrun(ctx context.Context, err error) *Result {
	ended := errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrStop)
	if ctx.Err() != nil {
		r := CancelledBefore()
		r.Ended = ended
		return r
	}
	if ended {
		err = errors.New("the server is shutting down")
	}
	r := failure(err)
	r.Ended = ended
	return r
}

// result is the result of code that ran.
func (x *execution) result(ctx context.Context, out *session.Outcome) *Result {
	r := &Result{
		Stdout:    lines(out.Stdout),
		Stderr:    lines(out.Stderr),
		Truncated: truncated(out.Stdout, out.Stderr),
		Dropped:   [2]Dropped{out.Stdout.Lost, out.Stderr.Lost},
		StateLost: out.Lost,
		Cell:      out.Number,
	}
	r.Notes = x.keep(out)
	r.Artifacts = x.artifacts(out)
	x.showPictures(r, out)
	r.NotTaken = x.req.TakeFiles != nil && (len(out.LeftOut) > 0 || out.MoreArtifacts)
	r.Notes = append(r.Notes, x.files(out)...)
	if out.Notice != "" {
		r.Notes = append(r.Notes, out.Notice)
	}
	if out.Usage != nil {
		r.Usage = x.broker.usage(*out.Usage)
	}
	if out.IdleOutput != "" {
		note := "written between calls, by code of an earlier one"
		if out.IdleOmitted > 0 {
			note += fmt.Sprintf(" (%d bytes before this left out)", out.IdleOmitted)
		}
		r.Notes = append(r.Notes, note+": "+strings.TrimRight(out.IdleOutput, "\n"))
	}
	if note := background(out.Background); note != "" {
		r.Notes = append(r.Notes, note)
	}
	x.outcome(ctx, r, out)
	return r
}

// uncaught begins the error of code that raised an exception.
const uncaught = "Uncaught exception"

// exited is the error of code that ended with another status than 0.
func exited(code int) string { return fmt.Sprintf("The code exited with status %d", code) }

// background says what the code has left running.
func background(b wire.Background) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{b.Threads, "thread"}, {b.Tasks, "asyncio task"}, {b.Children, "child process"}} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.what)
		case p.n > 1 && strings.HasSuffix(p.what, "s"):
			parts = append(parts, fmt.Sprintf("%d %ses", p.n, p.what))
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "still running in the background: " + strings.Join(parts, ", ")
}

// outcome adds to a result how the code ended.
func (x *execution) outcome(ctx context.Context, r *Result, out *session.Outcome) {
	code := out.ExitCode
	switch out.End {
	case session.Finished:
		r.Status, r.Summary, r.ExitCode = Success, success(r), &code
	case session.Exited:
		r.ExitCode = &code
		if code == 0 {
			r.Status, r.Summary = Success, success(r)
			break
		}
		r.Status = Failed
		r.Error = exited(code)
		r.Summary = r.Error
	case session.Raised:
		r.Status, r.ExitCode = Failed, &code
		r.Error = uncaught
		if what := raised(out.Error, r.Stderr); what != "" {
			r.Error += ": " + what
		}
		r.Summary = r.Error
	case session.TimedOut:
		limit := seconds(out.Limit)
		r.Status, r.TimeoutSeconds = Timeout, out.Limit.Seconds()
		r.Summary = "Timeout: execution exceeded " + limit
		r.Error = "Execution timed out after " + limit
		if out.Whole {
			r.Error += " in all, time that it waited for tools included"
		}
		if out.Fetching {
			r.Error += ": the code had ended, and the files that it left did not come in time"
		}
		r.Error += "; " + interpreterState(r, out)
	case session.Cancelled:
		r.Status, r.Ended = Failed, out.Stopped || errors.Is(context.Cause(ctx), errGone)
		r.Error = "Cancelled by " + canceller(ctx) + "; " + interpreterState(r, out)
		r.Summary = r.Error
	case session.Died:
		r.Status = Failed
		if out.Known {
			r.ExitCode = &code
		}
		r.Error, r.OutOfMemory = out.Reason, out.OutOfMemory
		r.Summary = "Sandbox error: " + out.Reason
	}
}

// canceller says who cancelled an execution.
func canceller(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), errCancelledByCode) {
		return "code in another session"
	}
	return "the client"
}

// What Result.Error says, after a semicolon, of code that we ended.
const (
	Kept = "the code was interrupted, the session's variables are kept"
	Lost = "the sandbox was killed, the session's variables and files are lost"
)

// interpreterState returns what happened to the interpreter of code that was
// ended from outside.
func interpreterState(r *Result, out *session.Outcome) string {
	if out.Survived {
		r.Interrupted = true
		return Kept
	}
	return Lost
}

func success(r *Result) string {
	if len(r.Stdout) == 0 && len(r.Stderr) == 0 {
		return "Success (no output)"
	}
	return "Success"
}

// seconds is a limit as it stands in messages: 5s, 1.5s.
func seconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }

// raised names the exception that ended the code: as the sandbox does, or else
// by what the code printed last.
func raised(e *wire.Exception, stderr []string) string {
	if e == nil || e.Type == "" {
		return lastLine(stderr)
	}
	text := e.Type
	if e.Message != "" {
		text += ": " + e.Message
	}
	text = fold.Line(text)
	// One line, whatever the sandbox sent.
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// lastLine is the line of a traceback that names the exception, as far as can
// be known from outside: the last one that is not blank.
func lastLine(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(fold.Line(lines[i])); line != "" {
			const most = 300
			if len(line) > most {
				return strings.ToValidUTF8(line[:most], "") + "…"
			}
			return line
		}
	}
	return ""
}

// finish adds what every result of the request has.
func (b *Broker) finish(req *Request, r *Result) *Result {
	r.Servers, r.Session, r.Backend = req.Servers, req.Session, req.Backend
	if r.Status == ValidationError {
		return r
	}
	if asked := req.asked; asked != 0 {
		setting := "timeouts.max"
		if _, batch := b.config.Batch.Services[req.Backend]; batch {
			setting = "runs.maxTimeout"
		}
		if asked > req.Timeout {
			r.Notes = append(r.Notes, fmt.Sprintf("a timeout of %s was asked for; %s is the most that is allowed (%s)", seconds(asked), seconds(req.Timeout), setting))
		} else {
			r.Notes = append(r.Notes, fmt.Sprintf("a timeout of %s was asked for; %s is the least", seconds(asked), seconds(req.Timeout)))
		}
	}
	return r
}
