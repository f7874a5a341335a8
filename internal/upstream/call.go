package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/tracecontext"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// codeHeaderMismatch is the error of a server that refuses a call because its
// headers do not repeat the arguments that the tool now wants there.
const codeHeaderMismatch = -32020

// Progress is a server's report on a call in progress.
type Progress struct {
	Progress float64
	Total    float64 // 0: unknown
	Message  string
}

// CallOptions are options of one call. The zero value is usable.
type CallOptions struct {
	// Timeout bounds the call, if it is shorter than the settings' and the
	// definition's limit.
	Timeout time.Duration
	// Progress receives the server's progress reports, in order; nil requests none.
	// It runs on a reading goroutine, must not block, and is not called after the
	// call has returned.
	Progress func(Progress)
}

// CallTool calls a tool and returns the CallToolResult as the server sent it,
// including one with isError. args is one JSON object, or empty for none.
//
// The gate has already decided whether the definition allows the tool.
//
// Failures are *Error. Their kind is ErrInvalidArguments, ErrGone, ErrTimeout,
// ErrInputRequired, ErrUnauthorized, ErrBadAnswer, or none if the server
// answered with a protocol error (a *jsonrpc.Error inside) or the caller's
// context ended. Ending ctx tells the server to stop the call.
func (s *Server) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	return s.CallToolWith(ctx, name, args, CallOptions{})
}

// CallToolWith is CallTool with options.
func (s *Server) CallToolWith(ctx context.Context, name string, args json.RawMessage, opts CallOptions) (json.RawMessage, error) {
	op := "tools/call " + name
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	// The arguments are inserted between other members, so they must be one value.
	if jsonscan.Kind(args) != '{' || !jsonscan.Valid(args) {
		return nil, &Error{Server: s.def.Name, Op: op, Kind: ErrInvalidArguments}
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		return nil, &Error{Server: s.def.Name, Op: op, Err: err}
	}
	members := make([]byte, 0, len(quoted)+len(args)+24)
	members = append(append(members, `"name":`...), quoted...)
	members = append(append(members, `,"arguments":`...), args...)

	outer := ctx
	ctx, cancel := s.callContext(ctx)
	defer cancel()
	if opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx, opts.Timeout)
		defer cancel()
	}
	var token int64
	if opts.Progress != nil {
		var forget func()
		token, forget = s.progress.listen(opts.Progress)
		defer forget()
	}
	params := s.session.paramsWith(members, token, tracecontext.From(ctx))
	s.caller.calls(s.client)
	done := s.begin()
	strayed := s.conn.Stats().Junk
	result, err := s.callTool(ctx, name, args, params)
	if err == nil {
		err = s.checkResult(result)
	}
	done(err)
	if err != nil {
		if errors.Is(err, ErrTimeout) && opts.Timeout <= 0 && outer.Err() == nil {
			s.suspect()
		}
		if errors.Is(err, ErrTimeout) && s.inFlight.Load() == 0 && s.caller.shows(s.client) {
			err = fmt.Errorf("%w%s", err, s.stray(s.conn.Stats().Junk-strayed, s.def.Redact))
		}
		return nil, s.failure(op, err)
	}
	return result, nil
}

// callTool sends the call, with headers that repeat arguments if the tool wants
// them. If the server has changed what it wants there, callTool lists its tools
// and tries again.
func (s *Server) callTool(ctx context.Context, name string, args, params json.RawMessage) (json.RawMessage, error) {
	with, ok := s.conn.(withHeaders)
	if !ok || s.session.era != eraStateless {
		return s.conn.Call(ctx, "tools/call", params)
	}
	result, err := with.CallWith(ctx, "tools/call", params, s.mirrored(ctx, name, args))
	var answered *jsonrpc.Error
	if errors.As(err, &answered) && answered.Code == codeHeaderMismatch {
		s.tools.forget()
		return with.CallWith(ctx, "tools/call", params, s.mirrored(ctx, name, args))
	}
	return result, err
}

// mirrored returns the headers that repeat arguments, by the tool's schema. A
// tool that is not listed is left for the server to refuse.
func (s *Server) mirrored(ctx context.Context, name string, args json.RawMessage) map[string]string {
	mirrored, listed := s.tools.headersOf(name)
	if !listed {
		_, _ = s.Tools(ctx)
		mirrored, _ = s.tools.headersOf(name)
	}
	return remote.ArgumentHeaders(mirrored, args)
}

// checkResult refuses what is not a CallToolResult, and the question that a
// server of the second era may answer with.
func (s *Server) checkResult(result json.RawMessage) error {
	if jsonscan.Kind(result) != '{' {
		return fmt.Errorf("%w: the result is not an object", ErrBadAnswer)
	}
	if s.session.era != eraStateless {
		return nil
	}
	var asks bool
	_ = jsonscan.Members(result, func(key string, value json.RawMessage) bool { // validated on arrival
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

// progressListeners are the calls that want progress reports.
type progressListeners struct {
	mu   sync.Mutex
	last int64
	by   map[int64]func(Progress)
}

// listen returns the token for a request, and a function that removes it.
func (l *progressListeners) listen(f func(Progress)) (token int64, forget func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[int64]func(Progress){}
	}
	l.last++
	token = l.last
	l.by[token] = f
	return token, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.by, token)
	}
}

// maxProgressMessage bounds the message of a progress report.
const maxProgressMessage = 4 << 10

// tell delivers a notification. It holds the lock meanwhile, so that nothing
// arrives after forget.
func (l *progressListeners) tell(params json.RawMessage) {
	var p struct {
		ProgressToken json.RawMessage `json:"progressToken"`
		Progress      float64         `json:"progress"`
		Total         float64         `json:"total"`
		Message       string          `json:"message"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	token, err := strconv.ParseInt(string(p.ProgressToken), 10, 64)
	if err != nil {
		return
	}
	if len(p.Message) > maxProgressMessage {
		p.Message = p.Message[:maxProgressMessage]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.by[token]; f != nil {
		f(Progress{Progress: p.Progress, Total: p.Total, Message: printable(p.Message)})
	}
}
