package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"sallyport/internal/bridge"
	"sallyport/internal/sandbox"
	"sallyport/internal/session"
	"sallyport/internal/wire"
)

// execution is one request that has its place in a session's queue.
type execution struct {
	broker  *Broker
	req     Request
	session *session.Session
	ticket  *session.Ticket
	servers *bridge.Execution
}

// run waits for the turn, runs the code and returns its result.
func (x *execution) run(ctx context.Context) *Result {
	if err := x.broker.clear(ctx); err != nil {
		x.session.Leave(x.ticket)
		return x.broker.finish(x.req, x.failed(ctx, err))
	}
	defer x.broker.bridge.Busy()()
	bill := x.bill()
	out, err := x.session.Exec(ctx, x.ticket, session.Request{
		Spent:    bill.spent(),
		Measure:  x.req.Measure || x.broker.config.ShowUsage,
		Code:     x.req.Code,
		Filename: x.req.Filename,
		Script:   x.req.Script,
		Args:     x.req.Args,
		Stdin:    x.req.Stdin,
		Timeout:  x.req.Timeout,
		Prepare:  x.prepare,
		Call:     x.call,
		Output:   x.req.OnOutput,
		Files:    x.req.Files,
		Collect:  &session.Collect{Choose: x.wanted, Create: x.req.TakeFiles},
	})
	if err != nil {
		if errors.Is(err, sandbox.ErrUnavailable) {
			x.broker.doubt()
		}
		return x.broker.finish(x.req, x.failed(ctx, err))
	}
	r := x.broker.finish(x.req, x.result(out))
	r.Servers = x.servers.Granted() // with those that the code loaded itself
	r.Notes = append(r.Notes, x.servers.Notes()...)
	if note := x.unkept(); note != "" {
		r.Notes = append(r.Notes, note)
	}
	r.ShowUsage = x.broker.config.ShowUsage
	bill.answered(r)
	return r
}

// unkept says once of a named session that it ends with this program, where it
// does.
func (x *execution) unkept() string {
	name := x.session.Name()
	if name == DefaultSession {
		return ""
	}
	err := x.broker.sessions.Unkept()
	if err == nil {
		return ""
	}
	x.broker.mu.Lock()
	defer x.broker.mu.Unlock()
	if x.broker.unkept[name] || len(x.broker.unkept) > maxUnkept {
		return ""
	}
	x.broker.unkept[name] = true
	return fmt.Sprintf("session %s ends with this program: %s", name, err)
}

// maxUnkept bounds how many names are remembered.
const maxUnkept = 1000

func (x *execution) call(ctx context.Context, call wire.Call) ([]byte, error) {
	return x.servers.Call(ctx, call)
}

// prepare starts the granted servers.
func (x *execution) prepare(ctx context.Context) (*session.Preparation, error) {
	definitions, err := x.servers.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	p := &session.Preparation{Grants: x.servers.Names()}
	p.Discovered, p.DiscoveredVersion = x.broker.bridge.Discovered()
	for _, d := range definitions {
		p.Define = append(p.Define, session.Definition{Server: d.Server, Version: d.Version})
	}
	return p, nil
}

// failed is the result of a request whose code never ran.
func (x *execution) failed(ctx context.Context, err error) *Result {
	if ctx.Err() != nil {
		return &Result{Status: Failed, Summary: "Cancelled before the code ran", Error: "Cancelled before the code ran"}
	}
	if errors.Is(err, session.ErrClosed) || errors.Is(err, session.ErrStop) {
		err = errors.New("the server is shutting down")
	}
	return failure(err)
}

// result is the result of code that ran.
func (x *execution) result(out *session.Outcome) *Result {
	r := &Result{
		Stdout:    lines(out.Stdout),
		Stderr:    lines(out.Stderr),
		StateLost: out.Lost,
	}
	if out.Stdout.Omitted > 0 || out.Stderr.Omitted > 0 {
		r.Truncated = &Truncated{Stdout: out.Stdout.Omitted, Stderr: out.Stderr.Omitted}
	}
	for _, a := range out.Artifacts[:min(maxNamed, len(out.Artifacts))] {
		r.Artifacts = append(r.Artifacts, Artifact{Path: a.Path, Size: a.Size})
	}
	for _, f := range out.Collected {
		if kind := imageType(f.Data); kind != "" && fits(r.Images, int64(len(f.Data))) {
			r.Images = append(r.Images, Image{Path: f.Path, MIMEType: kind, Data: f.Data})
		}
	}
	r.NotTaken = x.req.TakeFiles != nil && (len(out.LeftOut) > 0 || out.MoreArtifacts)
	r.Notes = append(r.Notes, x.files(out)...)
	if out.Usage != nil {
		r.Usage = x.broker.usage(*out.Usage)
	}
	if out.Stray != "" {
		note := "written between calls, by code of an earlier one"
		if out.StrayOmitted > 0 {
			note += fmt.Sprintf(" (%d bytes before this left out)", out.StrayOmitted)
		}
		r.Notes = append(r.Notes, note+": "+strings.TrimRight(out.Stray, "\n"))
	}
	if note := background(out.Background); note != "" {
		r.Notes = append(r.Notes, note)
	}
	x.judge(r, out)
	return r
}

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

// judge says what became of the code.
func (x *execution) judge(r *Result, out *session.Outcome) {
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
		r.Error = fmt.Sprintf("The code exited with status %d", code)
		r.Summary = r.Error
	case session.Raised:
		r.Status, r.ExitCode = Failed, &code
		r.Error = "Uncaught exception"
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
		r.Error += "; " + fate(r, out)
	case session.Cancelled:
		r.Status = Failed
		r.Error = "Cancelled by the client; " + fate(r, out)
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

// What Result.Error says, after a semicolon, of code that we ended.
const (
	Kept = "the code was interrupted, the session's variables are kept"
	Lost = "the sandbox was killed, the session's variables and files are lost"
)

// fate says what became of the interpreter of code that we ended.
func fate(r *Result, out *session.Outcome) string {
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
	// One line, whatever the sandbox sent.
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// lastLine is the line of a traceback that names the exception, as far as can
// be told from outside: the last one that is not blank.
func lastLine(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" {
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
func (b *Broker) finish(req Request, r *Result) *Result {
	r.Servers, r.Session, r.Backend = req.Servers, req.Session, req.Backend
	if r.Status == ValidationError {
		return r
	}
	if asked := req.asked; asked != 0 {
		setting := "timeouts.max"
		if _, batch := b.config.Batch[req.Backend]; batch {
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
