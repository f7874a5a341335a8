package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Server is one running server, as one definition shows it. It is valid until the
// server ends; then the Manager returns another one. Its methods are safe for
// concurrent use.
type Server struct {
	def         Definition
	callTimeout time.Duration
	client      uint64 // the Manager whose definition it is; 0: none
	identity    string
	may         inquiry.Takes // what the settings let it ask
	*live

	filtering sync.Mutex
	filtered  struct{ from, to []tool.Tool } // see allowed
}

// live is a running server, which several definitions may share.
type live struct {
	log         *slog.Logger
	conn        transport
	session     *session
	tools       *toolCache
	changed     func() // called when its tools have changed
	pingTimeout time.Duration

	started time.Time
	took    time.Duration

	calls, failed, inFlight atomic.Int64
	lastUse                 atomic.Int64 // nanoseconds since the epoch
	stopping, suspected     atomic.Bool
	caller                  caller

	doing       undertaken
	progress    progressListeners
	completions completions
	// background runs a function that ends with the Pool.
	background func(func(context.Context))
}

// Info describes a running server.
type Info struct {
	Name            string
	Transport       string // stdio, streamable HTTP or HTTP with SSE
	PID             int    // 0 if it is not a program on this machine
	ProtocolVersion string
	Server          Implementation // the name that the server gives itself
	Instructions    string
	Started         time.Time
	StartTook       time.Duration
	// Odd is how it broke the protocol in messages that could be read.
	Odd []string
}

// Info returns what is known since the start.
func (s *Server) Info() Info {
	i := Info{
		Name:            s.def.Name,
		ProtocolVersion: s.session.version,
		Server:          s.session.server,
		Instructions:    s.session.instructions,
		Started:         s.started,
		StartTook:       s.took,
	}
	switch t := s.conn.(type) {
	case *program:
		i.Transport, i.PID, i.Odd = "stdio", t.proc.PID(), t.Odd()
	case *remote.Streamable:
		i.Transport = "streamable HTTP"
	case *remote.Legacy:
		i.Transport = "HTTP with SSE"
	}
	return i
}

// Stats counts what happened on a server's connection.
type Stats struct {
	Calls, Failed, InFlight int64
	LastUse                 time.Time
	Wire                    jsonrpc.Stats
}

// Stats returns the current counters.
func (s *Server) Stats() Stats {
	return Stats{
		Calls: s.calls.Load(), Failed: s.failed.Load(), InFlight: s.inFlight.Load(),
		LastUse: time.Unix(0, s.lastUse.Load()),
		Wire:    s.conn.Stats(),
	}
}

// Definition returns what the server was started from.
func (s *Server) Definition() Definition { return s.def }

// Diagnosis is what a server wrote besides the protocol, without its secrets.
type Diagnosis struct {
	Exit   string // empty while it runs
	Stderr string // the last 64 KiB
	Stdout string // the last 64 KiB of lines that were no messages
	// Withheld means that both are empty because another client has called the
	// server, too.
	Withheld bool
}

// Diagnosis returns what is known now.
func (s *Server) Diagnosis() Diagnosis {
	d := Diagnosis{Stdout: s.def.Redact(string(s.conn.Junk()))}
	if p, ok := s.conn.(*program); ok {
		d.Exit, d.Stderr = p.proc.ExitStatus(), s.def.Redact(string(p.proc.Stderr()))
	}
	if !s.caller.shows(s.client) {
		d.Stderr, d.Stdout, d.Withheld = "", "", true
	}
	return d
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

// callContext bounds a call by the settings, or the definition.
func (s *Server) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return bounded(ctx, s.callTimeout)
}

// bounded returns ctx with a time limit, or without one if limit is below 1.
// Its cause is an ErrTimeout with the limit.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return WithTimeout(ctx, limit)
}

// WithTimeout returns a context whose cause is an ErrTimeout when the limit has
// passed.
func WithTimeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, timeoutError{limit})
}

// timeoutError is an ErrTimeout with its limit.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("no answer within %s", e.limit) }
func (timeoutError) Unwrap() error   { return ErrTimeout }

// begin counts a call; the function that it returns ends it.
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
// how the server ended if it did, and contains no secret.
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
		diagnose(e, s)
		if e.Exit == "" {
			e.Err = redactError(s.def, err)
		}
	case errors.Is(err, remote.ErrLost):
		e.Kind, e.Err = ErrGone, redactError(s.def, err)
	case errors.Is(err, ErrTimeout):
		e.Kind, e.Err = ErrTimeout, err
		if op == "tools/list" { // as at the start; a call may come from ungranted code
			diagnose(e, s)
		}
	case errors.Is(err, ErrInputRequired):
		e.Kind, e.Err = ErrInputRequired, redactError(s.def, err)
	case errors.Is(err, jsonrpc.ErrNotJSON), errors.Is(err, jsonrpc.ErrMalformed):
		e.Kind, e.Err = ErrBadAnswer, redactError(s.def, err)
	default:
		var deep *jsonrpc.DeepError
		if errors.As(err, &deep) {
			err = &jsonrpc.DeepError{Depth: deep.Depth, Limit: deep.Limit} // an error is kept for long
		}
		e.Err = redactError(s.def, withAdvice(s.def, err))
	}
	return e.readBy(s.client)
}

func (s *Server) redactAnswer(answered *jsonrpc.Error) *jsonrpc.Error {
	clean := &jsonrpc.Error{Code: answered.Code, Message: s.def.Redact(answered.Message)}
	// A secret may be outside of a string.
	if data := json.RawMessage(s.def.Redact(string(answered.Data))); jsonscan.Valid(data) {
		clean.Data = data
	}
	return clean
}

// notified handles the server's notifications. It runs on a reading goroutine.
func (s *Server) notified(method string, params json.RawMessage) {
	if len(params) > 2*maxHeard && (method == "notifications/progress" || method == "notifications/message") {
		return // it is not charged to anyone
	}
	switch method {
	case "notifications/tools/list_changed":
		s.tools.invalidate()
		s.changed()
	case "notifications/subscriptions/acknowledged":
		s.tools.invalidate() // a change before this was not announced
	case "notifications/progress":
		s.progress.tell(params)
	case "notifications/elicitation/complete":
		s.completions.tell(params)
	case "notifications/message":
		s.logged(params)
		if s.log.Enabled(context.Background(), slog.LevelDebug) {
			s.log.Debug("from the server", "method", method, "params", s.def.Redact(string(params[:min(len(params), 2<<10)])))
		}
	}
}

// wantLogs asks a server of the first era for its log messages: some send none
// without that.
func (s *Server) wantLogs(ctx context.Context) {
	if s.session.era == eraStateless || !s.session.logs {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if _, err := s.conn.Call(ctx, "logging/setLevel", []byte(`{"level":"info"}`)); err != nil {
		s.log.Debug("the server takes no level for its log messages", "err", redactError(s.def, err))
	}
}

// Delays before a server is asked again to announce changes of its tools.
const (
	firstListen = time.Second
	maxListen   = time.Minute
)

// listen asks a server of the second era to announce changes of its tools,
// which one of the first era does by itself. The request stays open; over HTTP
// it is sent again if it breaks, until ctx ends.
func (s *Server) listen(ctx context.Context) {
	if s.session.era != eraStateless || !s.session.listChanged {
		return
	}
	for wait := firstListen; ; wait = min(2*wait, maxListen) {
		begun := time.Now()
		_, err := s.conn.Call(ctx, "subscriptions/listen", s.session.params([]byte(`"notifications":{"toolsListChanged":true}`)))
		if !errors.Is(err, remote.ErrLost) && !errors.Is(err, remote.ErrUnreachable) {
			s.log.Debug("changes of the tools are no longer announced", "err", redactError(s.def, err))
			return
		}
		if time.Since(begun) > maxListen {
			wait = firstListen
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		case <-s.conn.Done():
			return
		}
		s.tools.invalidate() // a change may have been missed
	}
}
