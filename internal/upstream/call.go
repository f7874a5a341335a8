package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// codeHeaderMismatch is the error of a server that refuses a call because its
// headers do not repeat the arguments that the tool now wants there.
const codeHeaderMismatch = -32020

// CallTool calls a tool and returns the CallToolResult as the server sent it,
// including one with isError. args is one JSON object, or empty for none.
//
// The gate has already decided whether the definition allows the tool.
//
// Failures are *Error. Their kind is ErrInvalidArguments, ErrGone, ErrTimeout,
// ErrInputRequired, ErrUnauthorized, ErrBadAnswer, or none if the server
// answered with a protocol error (a *jsonrpc.Error inside) or the caller's
// context ended. Ending ctx tells the server to stop the call.
//
// If the context has a host, the server's requests, progress and log messages reach
// it: see WithHost.
func (s *Server) CallTool(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
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

	d, leave := s.enter(ctx)
	strayed := s.conn.Stats().Junk
	result, err := d.converse(members, func(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
		return s.callTool(ctx, name, args, params)
	})
	leave(err)
	if err != nil {
		if errors.Is(err, ErrTimeout) && ctx.Err() == nil {
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
