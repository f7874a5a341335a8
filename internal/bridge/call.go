package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/wire"
)

// Call answers a call of the execution's code. An error is a *wire.CallError,
// fit to be shown to the code. Ending ctx cancels the call, at the server too.
func (x *Execution) Call(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	ctx = x.within(ctx)
	var result json.RawMessage
	var err error
	switch call.Method {
	case wire.MethodCallTool:
		result, err = x.callTool(ctx, call)
	case wire.MethodListTools:
		result, err = x.listTools(ctx, call.Params)
	case wire.MethodLoadServer:
		result, err = x.loadServer(ctx, call.Params)
	case wire.MethodFindServers:
		result, err = x.findServers(call.Params)
	case wire.MethodRequestServer:
		result, err = x.requestServer(ctx, call.Params)
	case wire.MethodQueryToolDocs:
		result, err = x.queryDocs(ctx, call.Params)
	case wire.MethodSearchToolDocs:
		result, err = x.searchDocs(ctx, call.Params)
	case wire.MethodServers:
		result, err = x.discovered()
	case wire.MethodMemoryGet, wire.MethodMemoryPut, wire.MethodMemoryDelete, wire.MethodMemoryList:
		result, err = x.memoryCall(call)
	case wire.MethodToolSave, wire.MethodToolLoad, wire.MethodToolNames:
		result, err = x.toolCall(call)
	case wire.MethodInstallPackages:
		result, err = x.installPackages(ctx, call.Params)
	case wire.MethodPackagePart:
		result, err = x.packagePart(ctx, call.Params)
	case wire.MethodListResources, wire.MethodListResourceTemplates, wire.MethodListPrompts, wire.MethodReadResource, wire.MethodGetPrompt:
		result, err = x.offered(ctx, call)
	default:
		err = &wire.CallError{Kind: wire.KindUnsupported, Message: "Unknown RPC type: " + clip(call.Method, 100)}
	}
	if err != nil {
		return nil, callError(ctx, err)
	}
	return result, nil
}

// params are those that the methods here know. Strings are decoded; arguments
// stay the code's own bytes.
type params struct {
	server, tool, name, uri string
	arguments               json.RawMessage
	fresh                   bool
}

func parseParams(raw json.RawMessage) (params, error) {
	var p params
	invalid := ""
	text := func(dst *string, key string, value json.RawMessage) {
		if jsonscan.Kind(value) != '"' || json.Unmarshal(value, dst) != nil {
			invalid = fmt.Sprintf("'%s' must be a string", key)
		}
	}
	err := jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "server":
			text(&p.server, key, value)
		case "tool":
			text(&p.tool, key, value)
		case "name":
			text(&p.name, key, value)
		case "uri":
			text(&p.uri, key, value)
		case "fresh":
			p.fresh = jsonscan.Kind(value) == 't'
		case "arguments":
			switch jsonscan.Kind(value) {
			case '{':
				p.arguments = value
			case 'n':
			default:
				invalid = "Arguments must be an object"
			}
		}
		return true
	})
	if err != nil {
		invalid = "the request must be an object"
	}
	if invalid != "" {
		return p, &wire.CallError{Kind: wire.KindInvalid, Message: invalid}
	}
	return p, nil
}

func (x *Execution) callTool(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	p, err := parseParams(call.Params)
	if err != nil {
		return nil, err
	}
	if p.tool == "" {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "Missing tool name"}
	}
	s, err := x.bridge.server(p.server)
	if err != nil {
		return nil, err
	}
	facts := x.bridge.factsOfTool(p.server, p.tool)
	permit, err := x.admit(ctx, authz.CallTool{
		Server: s, Granted: x.isGranted(p.server), Tool: p.tool, Listed: len(facts.form) > 0, Form: x.bridge.toolForm(p.server, p.tool), Arguments: p.arguments,
		Annotations: facts.annotations, Description: facts.summary, Counts: &x.counts, Behind: call.Behind,
	})
	if err != nil {
		return nil, err
	}
	x.begin(p.server, p.tool)
	defer x.end(p.server, p.tool)
	result, err := x.send(ctx, &permit, p.fresh)
	if err == nil {
		x.bridge.learn(p.server, p.tool, result)
	}
	return result, err
}

// list admits the listing of a server that the execution has been granted.
func (x *Execution) list(ctx context.Context, name string) (authz.Permit, error) {
	s, err := x.bridge.server(name)
	if err != nil {
		return authz.Permit{}, err
	}
	return x.admit(ctx, authz.ListServer{Server: s, Granted: x.isGranted(name)})
}

func (x *Execution) listTools(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseParams(raw)
	if err != nil {
		return nil, err
	}
	permit, err := x.list(ctx, p.server)
	if err != nil {
		return nil, err
	}
	result, err := signingIn(ctx, x.bridge, &permit, func() (json.RawMessage, error) { return x.listedTools(ctx, p.server, &permit) })
	finish(&permit, len(result), err)
	return result, err
}

func (x *Execution) listedTools(ctx context.Context, name string, permit *authz.Permit) (json.RawMessage, error) {
	server, err := x.bridge.open(ctx, permit)
	if err != nil {
		return nil, err
	}
	tools, err := toolsOf(ctx, server, permit)
	if err != nil {
		return nil, x.bridge.failed(ctx, name, err, true)
	}
	list, err := x.ownWords(ctx, name, tools)
	if err != nil {
		return nil, err
	}
	return joined(list), nil
}

// joined returns an array of these elements.
func joined(elements []json.RawMessage) json.RawMessage {
	size := 2
	for _, raw := range elements {
		size += len(raw) + 1
	}
	list := append(make([]byte, 0, size), '[')
	for i, raw := range elements {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, raw...)
	}
	return append(list, ']')
}

func (x *Execution) loadServer(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	p, err := parseParams(raw)
	if err != nil {
		return nil, err
	}
	return x.grantServer(ctx, p.name)
}

// grantServer checks, starts and grants a server, and returns what the sandbox
// needs to know about it.
func (x *Execution) grantServer(ctx context.Context, name string) (json.RawMessage, error) {
	x.begin(name, "")
	definition, err := x.bridge.describe(ctx, x.principal, name)
	x.end(name, "")
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(definition)
	if err != nil {
		return nil, fmt.Errorf("encoding a server's definition: %w", err)
	}
	x.grant(name)
	return encoded, nil
}

// callError gives a failure the kind by which the guest chooses its exception.
func callError(ctx context.Context, err error) *wire.CallError {
	var ready *wire.CallError
	if errors.As(err, &ready) {
		return ready
	}
	const maxMessage = 4 << 10
	var denied *authz.Denied
	if errors.As(err, &denied) {
		return &wire.CallError{Kind: wire.KindDenied, Message: clip(err.Error(), maxMessage)}
	}
	if ctx.Err() != nil {
		return &wire.CallError{Kind: wire.KindCancelled, Message: "the execution that made this call has ended"}
	}
	var answered *jsonrpc.Error
	kind := wire.KindUnavailable
	switch {
	case errors.Is(err, upstream.ErrDisabled), errors.Is(err, upstream.ErrOffered):
		kind = wire.KindDenied
	case errors.Is(err, upstream.ErrInvalidArguments):
		kind = wire.KindInvalid
	case errors.Is(err, upstream.ErrUnknownServer):
		kind = wire.KindNotFound
	case errors.Is(err, upstream.ErrTimeout):
		kind = wire.KindTimeout
	case errors.Is(err, jsonrpc.ErrTooLarge):
		kind = wire.KindLimit
	case errors.Is(err, upstream.ErrInputRequired), errors.Is(err, upstream.ErrNotOffered):
		kind = wire.KindUnsupported
	case errors.As(err, &answered), errors.Is(err, upstream.ErrBadAnswer):
		kind = wire.KindServer
	}
	return &wire.CallError{Kind: kind, Message: clip(err.Error(), maxMessage)}
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
