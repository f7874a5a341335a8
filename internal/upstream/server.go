package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"sallyport/internal/upstream/child"
	"sallyport/internal/upstream/jsonrpc"
)

// Server is one running server. It is good until the server ends; the Manager
// hands out another one then. Its methods are safe for concurrent use.
type Server struct {
	def         Definition
	log         *slog.Logger
	proc        *child.Process
	conn        *jsonrpc.Conn
	session     *session
	tools       *toolCache
	callTimeout time.Duration

	started time.Time
	took    time.Duration

	calls, failed, inFlight atomic.Int64
	lastUse                 atomic.Int64 // nanoseconds since the epoch
	stopping                atomic.Bool
}

// Info describes a running server.
type Info struct {
	Name            string
	PID             int
	ProtocolVersion string
	Server          Implementation // as the server calls itself
	Instructions    string
	Started         time.Time
	StartTook       time.Duration
}

// Info returns what is known since the start.
func (s *Server) Info() Info {
	return Info{
		Name:            s.def.Name,
		PID:             s.proc.PID(),
		ProtocolVersion: s.session.version,
		Server:          s.session.server,
		Instructions:    s.session.instructions,
		Started:         s.started,
		StartTook:       s.took,
	}
}

// Stats counts what happened on a server's connection.
type Stats struct {
	Calls, Failed, InFlight int64
	LastUse                 time.Time
	Wire                    jsonrpc.Stats
}

// Stats returns the counters of now.
func (s *Server) Stats() Stats {
	return Stats{
		Calls: s.calls.Load(), Failed: s.failed.Load(), InFlight: s.inFlight.Load(),
		LastUse: time.Unix(0, s.lastUse.Load()),
		Wire:    s.conn.Stats(),
	}
}

// Definition returns what the server was started from.
func (s *Server) Definition() Definition { return s.def }

// Diagnosis is what a server said beside the protocol, without its secrets.
type Diagnosis struct {
	Exit   string // empty while it runs
	Stderr string // the last 64 KiB
	Stdout string // the last 64 KiB of lines that were no messages
}

// Diagnosis returns what is known now.
func (s *Server) Diagnosis() Diagnosis {
	return Diagnosis{
		Exit:   s.proc.ExitStatus(),
		Stderr: s.def.Redact(string(s.proc.Stderr())),
		Stdout: s.def.Redact(string(s.conn.Junk())),
	}
}

// Alive reports whether calls can still succeed.
func (s *Server) Alive() bool {
	select {
	case <-s.conn.Done():
		return false
	default:
		return true
	}
}

// CallTool calls a tool and returns the CallToolResult as the server sent it,
// also one that says isError. args is one JSON object, or empty for none.
//
// Failures are *Error; the kinds are ErrInvalidArguments, ErrToolNotAllowed,
// ErrGone, ErrTimeout, ErrInputRequired and none, when the server answered with
// a protocol error (a *jsonrpc.Error within) or the caller's context ended.
// Ending ctx tells the server to stop the call.
func (s *Server) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	op := "tools/call " + name
	if !s.def.ToolAllowed(name) {
		return nil, &Error{Server: s.def.Name, Op: op, Kind: ErrToolNotAllowed}
	}
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	// The arguments are put between other members: they must be one value.
	if jsonrpc.Kind(args) != '{' || !jsonrpc.Valid(args) {
		return nil, &Error{Server: s.def.Name, Op: op, Kind: ErrInvalidArguments}
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, &Error{Server: s.def.Name, Op: op, Err: err}
	}
	members := make([]byte, 0, len(quoted)+len(args)+24)
	members = append(append(members, `"name":`...), quoted...)
	members = append(append(members, `,"arguments":`...), args...)

	ctx, cancel := s.callContext(ctx)
	defer cancel()
	done := s.begin()
	result, err := s.conn.Call(ctx, "tools/call", s.session.params(members))
	if err == nil {
		err = s.checkResult(result)
	}
	done(err)
	if err != nil {
		return nil, s.failure(op, err)
	}
	return result, nil
}

// checkResult refuses what is no CallToolResult at all, and the question that a
// server of the second era may answer with.
func (s *Server) checkResult(result json.RawMessage) error {
	if jsonrpc.Kind(result) != '{' {
		return fmt.Errorf("%w: the result is not an object", ErrBadAnswer)
	}
	if s.session.era != eraStateless {
		return nil
	}
	var asks bool
	_ = jsonrpc.Members(result, func(key string, value json.RawMessage) bool { // valid since it arrived
		if key == "resultType" {
			asks = string(value) == `"input_required"`
		}
		return true
	})
	if asks {
		return ErrInputRequired
	}
	return nil
}

// callContext bounds a call by the setting.
func (s *Server) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.callTimeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.callTimeout, fmt.Errorf("%w after %s", ErrTimeout, s.callTimeout))
}

// begin counts a call; what it returns ends it.
func (s *Server) begin() func(error) {
	s.calls.Add(1)
	s.inFlight.Add(1)
	s.touch()
	return func(err error) {
		if err != nil {
			s.failed.Add(1)
		}
		s.touch()
		s.inFlight.Add(-1)
	}
}

func (s *Server) touch() { s.lastUse.Store(time.Now().UnixNano()) }

// failure makes an error of a call fit for people: it names the server, says
// how the server ended if it did, and holds no secret.
func (s *Server) failure(op string, err error) error {
	e := &Error{Server: s.def.Name, Op: op}
	var answered *jsonrpc.Error
	switch {
	case errors.As(err, &answered):
		e.Err = s.redactAnswer(answered)
	case errors.Is(err, jsonrpc.ErrClosed):
		e.Kind = ErrGone
		if s.stopping.Load() {
			e.Err = errors.New("it was stopped")
			break
		}
		fillDiagnosis(e, s.def, s.proc, s.conn)
		if e.Exit == "" {
			e.Err = err
		}
	case errors.Is(err, ErrTimeout):
		e.Kind = ErrTimeout
		e.Err = fmt.Errorf("no answer within %s", s.callTimeout)
	case errors.Is(err, ErrInputRequired):
		e.Kind = ErrInputRequired
	case errors.Is(err, jsonrpc.ErrNotJSON), errors.Is(err, jsonrpc.ErrMalformed):
		e.Kind, e.Err = ErrBadAnswer, err
	default:
		e.Err = err
	}
	return e
}

func (s *Server) redactAnswer(answered *jsonrpc.Error) *jsonrpc.Error {
	clean := &jsonrpc.Error{Code: answered.Code, Message: s.def.Redact(answered.Message)}
	// A secret may have stood outside of a string.
	if data := json.RawMessage(s.def.Redact(string(answered.Data))); jsonrpc.Valid(data) {
		clean.Data = data
	}
	return clean
}

// fillDiagnosis adds how a server ended, if it did, and its last words.
func fillDiagnosis(e *Error, def Definition, proc *child.Process, conn *jsonrpc.Conn) {
	select {
	case <-conn.Done():
		// The end of its output is often seen before the end of the process.
		soon, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		for _, event := range []<-chan struct{}{proc.Exited(), conn.Drained()} {
			select {
			case <-event:
			case <-soon.Done():
			}
		}
	default:
	}
	e.Exit = proc.ExitStatus()
	e.LastText = lastLines([]byte(def.Redact(string(proc.Stderr()))), 20, 2<<10)
	if e.LastText == "" {
		e.LastText = lastLines([]byte(def.Redact(string(conn.Junk()))), 20, 2<<10)
	}
}

// notified handles what the server says unasked. It runs on the reading
// goroutine.
func (s *Server) notified(method string, params json.RawMessage) {
	switch method {
	case "notifications/tools/list_changed":
		s.tools.invalidate()
	case "notifications/message", "notifications/progress":
		if s.log.Enabled(context.Background(), slog.LevelDebug) {
			s.log.Debug("from the server", "method", method, "params", s.def.Redact(string(params[:min(len(params), 2<<10)])))
		}
	}
}

// answer answers what a server asks. We declare no capability, so that there is
// nothing to ask for but whether we live.
func answer(method string, _ json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
	if method == "ping" {
		return json.RawMessage(`{}`), nil
	}
	message := "Method not found"
	switch method {
	case "sampling/createMessage":
		message = "This client does not offer sampling"
	case "elicitation/create":
		message = "This client does not offer elicitation"
	case "roots/list":
		message = "This client does not offer roots"
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: message}
}

// listen asks a server of the second era to say when its tools change, which
// one of the first era does by itself. The request stays open.
func (s *Server) listen(ctx context.Context) {
	if s.session.era != eraStateless || !s.session.listChanged {
		return
	}
	_, err := s.conn.Call(ctx, "subscriptions/listen", s.session.params([]byte(`"notifications":{"toolsListChanged":true}`)))
	var answered *jsonrpc.Error
	if errors.As(err, &answered) {
		s.log.Debug("changes of the tools are not announced", "err", answered)
	}
}
