package bridge

import (
	"context"
	"encoding/json"
	"fmt"

	"sallyport/internal/wire"
)

// Offers is what a [Server] may have besides tools, as [upstream.Server]
// describes it.
type Offers interface {
	Resources(ctx context.Context) (json.RawMessage, error)
	ResourceTemplates(ctx context.Context) (json.RawMessage, error)
	ReadResource(ctx context.Context, uri string) (json.RawMessage, error)
	Prompts(ctx context.Context) (json.RawMessage, error)
	GetPrompt(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error)
}

// maxURI bounds the address of a resource, and the name of a prompt.
const maxURI = 64 << 10

// offered answers the methods about a server's resources and prompts. They need
// the same grant as its tools.
func (x *Execution) offered(ctx context.Context, call wire.Call) (json.RawMessage, error) {
	p, err := parseParams(call.Params)
	if err != nil {
		return nil, err
	}
	if len(p.uri) > maxURI || len(p.name) > maxURI {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: fmt.Sprintf("'uri' and 'name' may have %d bytes", maxURI)}
	}
	switch {
	case call.Method == wire.MethodReadResource && p.uri == "":
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "Missing 'uri' value"}
	case call.Method == wire.MethodGetPrompt && p.name == "":
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "Missing 'name' value"}
	}
	server, err := x.open(ctx, p.server)
	if err != nil {
		return nil, err
	}
	offers, ok := server.(Offers)
	if !ok {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: fmt.Sprintf("Server '%s' has tools only", p.server)}
	}
	select {
	case x.calls <- struct{}{}:
		defer func() { <-x.calls }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var result json.RawMessage
	switch call.Method {
	case wire.MethodListResources:
		result, err = offers.Resources(ctx)
	case wire.MethodListResourceTemplates:
		result, err = offers.ResourceTemplates(ctx)
	case wire.MethodListPrompts:
		result, err = offers.Prompts(ctx)
	case wire.MethodReadResource:
		result, err = offers.ReadResource(ctx, p.uri)
	default:
		result, err = offers.GetPrompt(ctx, p.name, p.arguments)
	}
	return result, x.bridge.failed(ctx, p.server, err, true)
}

// facts answers what holds for the session.
func (x *Execution) facts() (json.RawMessage, error) {
	return json.Marshal(x.bridge.config.Facts)
}
