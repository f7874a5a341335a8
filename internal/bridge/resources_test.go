package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// library is a server that has resources and prompts.
type library struct{ *stubServer }

func (library) Resources(context.Context) (json.RawMessage, error) {
	return json.RawMessage(`[{"uri":"a://1"}]`), nil
}

func (library) ResourceTemplates(context.Context) (json.RawMessage, error) {
	return json.RawMessage(`[{"uriTemplate":"a://{n}"}]`), nil
}

func (library) ReadResource(_ context.Context, uri string) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"read": uri})
}

func (library) Prompts(context.Context) (json.RawMessage, error) {
	return nil, &upstream.Error{Server: "lib", Op: "prompts/list", Kind: upstream.ErrNotOffered}
}

func (library) GetPrompt(_ context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(name + " " + string(arguments)), nil
}

// librarySource has one server with more than tools, and one without.
type librarySource struct{}

func (librarySource) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "lib", Alias: "lib"}, {Name: "other", Alias: "other"}, {Name: "plain", Alias: "plain"}}
}

func (librarySource) Open(_ context.Context, name string) (Server, error) {
	if name == "plain" {
		return &stubServer{}, nil
	}
	return library{&stubServer{}}, nil
}

func TestOffered(t *testing.T) {
	b, err := New(Config{Source: librarySource{}, Gate: authz.New(authz.Config{Policy: authz.Default()})})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, method, params, want string }{
		{"resources", wire.MethodListResources, `{"server":"lib"}`, `[{"uri":"a://1"}]`},
		{"templates", wire.MethodListResourceTemplates, `{"server":"lib"}`, `[{"uriTemplate":"a://{n}"}]`},
		{"read", wire.MethodReadResource, `{"server":"lib","uri":"a://ä"}`, `{"read":"a://ä"}`},
		{"prompt", wire.MethodGetPrompt, `{"server":"lib","name":"p","arguments":{"b":"1","a":"2"}}`, `p {"b":"1","a":"2"}`},
		{"prompt without arguments", wire.MethodGetPrompt, `{"server":"lib","name":"p"}`, `p `},
		{"not offered", wire.MethodListPrompts, `{"server":"lib"}`, `unsupported: MCP server "lib": the server does not offer this`},
		{"tools only", wire.MethodListResources, `{"server":"plain"}`, "unsupported: Server 'plain' has tools only"},
		{"not granted", wire.MethodReadResource, `{"server":"other","uri":"a://1"}`, "denied: Server 'other' is not available"},
		{"unknown", wire.MethodReadResource, `{"server":"lob","uri":"a://1"}`, "not_found: Unknown MCP server: lob"},
		{"no address", wire.MethodReadResource, `{"server":"lib"}`, "invalid: Missing 'uri' value"},
		{"no prompt", wire.MethodGetPrompt, `{"server":"lib"}`, "invalid: Missing 'name' value"},
		{"an address that is no text", wire.MethodReadResource, `{"server":"lib","uri":["a"]}`, "invalid: 'uri' must be a string"},
		{"a long address", wire.MethodReadResource, `{"server":"lib","uri":"` + strings.Repeat("x", maxURI+1) + `"}`, "invalid: 'uri' and 'name' may have 65536 bytes"},
		{"arguments that are a list", wire.MethodGetPrompt, `{"server":"lib","name":"p","arguments":[]}`, "invalid: Arguments must be an object"},
		{"no object", wire.MethodListResources, `7`, "invalid: the request must be an object"},
	}
	x := b.Begin(self, []string{"lib", "plain"})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result, err := x.Call(t.Context(), wire.Call{Method: tt.method, Params: json.RawMessage(tt.params)})
			got := string(result)
			var refused *wire.CallError
			if errors.As(err, &refused) {
				got = refused.Kind + ": " + refused.Message
			}
			if err != nil && !strings.HasPrefix(got, tt.want) || err == nil && got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestOfferedWaits: what is asked of servers counts among the calls at a time.
func TestOfferedWaits(t *testing.T) {
	b, err := New(Config{Source: librarySource{}, Gate: authz.New(authz.Config{Policy: authz.Default()}), MaxCalls: 1})
	if err != nil {
		t.Fatal(err)
	}
	x := b.Begin(self, []string{"lib"})
	x.calls <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = x.Call(ctx, wire.Call{Method: wire.MethodListResources, Params: json.RawMessage(`{"server":"lib"}`)})
	var refused *wire.CallError
	if !errors.As(err, &refused) || refused.Kind != wire.KindCancelled {
		t.Error(err)
	}
	<-x.calls
	if _, err := x.Call(t.Context(), wire.Call{Method: wire.MethodListResources, Params: json.RawMessage(`{"server":"lib"}`)}); err != nil {
		t.Error(err)
	}
}
