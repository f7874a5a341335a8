package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"sallyport/internal/upstream/jsonrpc"
	"sallyport/internal/upstream/remote"
)

// codeHeaderMismatch is how a server refuses a call whose headers do not repeat
// the arguments that its tool now wants there.
const codeHeaderMismatch = -32020

// Progress is what a server says of a call that it works on.
type Progress struct {
	Progress float64
	Total    float64 // 0: not known
	Message  string
}

// CallOptions of one call. The zero value is usable.
type CallOptions struct {
	// Timeout bounds the call below what the settings and the definition say.
	Timeout time.Duration
	// Progress is told what the server says of the call, in order; nil asks
	// for nothing. It runs on a reading goroutine and must not block, and is
	// not called any more when the call has returned.
	Progress func(Progress)
}

// CallTool calls a tool and returns the CallToolResult as the server sent it,
// also one that says isError. args is one JSON object, or empty for none.
//
// Failures are *Error; the kinds are ErrInvalidArguments, ErrToolNotAllowed,
// ErrGone, ErrTimeout, ErrInputRequired, ErrUnauthorized, ErrBadAnswer and none,
// when the server answered with a protocol error (a *jsonrpc.Error within) or
// the caller's context ended. Ending ctx tells the server to stop the call.
func (s *Server) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	return s.CallToolWith(ctx, name, args, CallOptions{})
}

// CallToolWith is CallTool with options.
func (s *Server) CallToolWith(ctx context.Context, name string, args json.RawMessage, opts CallOptions) (json.RawMessage, error) {
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

	outer := ctx
	ctx, cancel := s.callContext(ctx)
	defer cancel()
	if opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = bounded(ctx, opts.Timeout)
		defer cancel()
	}
	params := s.session.params(members)
	if opts.Progress != nil {
		token, forget := s.progress.listen(opts.Progress)
		defer forget()
		params = s.session.paramsWithToken(members, token)
	}
	done := s.begin()
	result, err := s.callTool(ctx, name, args, params)
	if err == nil {
		err = s.checkResult(result)
	}
	done(err)
	if err != nil {
		if errors.Is(err, ErrTimeout) && opts.Timeout <= 0 && outer.Err() == nil {
			s.suspect()
		}
		return nil, s.failure(op, err)
	}
	return result, nil
}

// callTool sends the call, with the headers that repeat arguments where there
// are any. The server may have changed what it wants there.
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

// mirrored are the headers that repeat arguments, as the schema of the tool says
// it. A tool that is not listed, or a list that is not to be had, is the
// server's to complain of.
func (s *Server) mirrored(ctx context.Context, name string, args json.RawMessage) map[string]string {
	tools := s.tools.last()
	if tools == nil {
		tools, _ = s.Tools(ctx)
	}
	for i := range tools {
		if tools[i].Name == name {
			return remote.ArgumentHeaders(tools[i].mirrored, args)
		}
	}
	return nil
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

// progressListeners are the calls that want to hear of their progress.
type progressListeners struct {
	mu   sync.Mutex
	last int64
	by   map[int64]func(Progress)
}

// listen returns the token for a request, and what forgets it.
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

// maxProgressMessage bounds what a server says of its progress.
const maxProgressMessage = 4 << 10

// tell hands out a notification. The lock is held meanwhile, so that nothing
// comes after forget.
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
