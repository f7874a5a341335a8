package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/wire"
)

// telling is a source whose every error says what only the user may know.
type telling struct{ open, list, call error }

const private = "/home/ada/.secrets postgres://u:p@db token=abc --flag"

func (telling) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "db", Alias: "db", Command: "prog"}}
}

func (s telling) Open(context.Context, string) (bridge.Server, error) { return s, s.open }

func (s telling) Tools(context.Context) ([]tool.Tool, error) { return nil, s.list }

func (s telling) CallTool(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, s.call
}

func (s telling) Resources(context.Context) (json.RawMessage, error)         { return nil, s.call }
func (s telling) ResourceTemplates(context.Context) (json.RawMessage, error) { return nil, s.call }
func (s telling) Prompts(context.Context) (json.RawMessage, error)           { return nil, s.call }
func (s telling) ReadResource(context.Context, string) (json.RawMessage, error) {
	return nil, s.call
}
func (s telling) GetPrompt(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, s.call
}

// TestFailuresTellOnlyTheirKind: whatever code asks for, a failing server is
// named with the kind of failure. The user reads the rest.
func TestFailuresTellOnlyTheirKind(t *testing.T) {
	fail := func(kind error, err error) error {
		return &upstream.Error{Server: "db", Op: private, Kind: kind, Err: err, Command: private, Exit: private, LastText: private}
	}
	other := errors.New(private)
	answered := &jsonrpc.Error{Code: -32000, Message: private}
	methods := []struct{ method, params string }{
		{"load_server", `{"name":"db"}`}, {"query_tool_docs", `{"server":"db"}`}, {"search_tool_docs", `{"query":"x"}`}, {"servers", `{}`},
		{"call_tool", `{"server":"db","tool":"x"}`}, {"list_tools", `{"server":"db"}`}, {"list_resources", `{"server":"db"}`},
		{"list_resource_templates", `{"server":"db"}`}, {"list_prompts", `{"server":"db"}`},
		{"read_resource", `{"server":"db","uri":"a"}`}, {"get_prompt", `{"server":"db","name":"a"}`},
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fail(upstream.ErrStart, other), "did not start"},
		{fail(upstream.ErrStart, answered), "did not start"},
		{fail(upstream.ErrStart, fmt.Errorf("%w: %s", upstream.ErrTimeout, private)), "did not start in time"},
		{fail(upstream.ErrStart, fmt.Errorf("%w: %s", upstream.ErrUnauthorized, private)), "is not authorised"},
		{fail(upstream.ErrGone, other), "ended before it answered"},
		{fail(upstream.ErrTimeout, other), "did not answer in time"},
		{fail(upstream.ErrBadAnswer, other), "sent an answer that is not valid"},
		{fail(nil, other), "failed"},
		{other, "failed"},
	} {
		for _, source := range []struct {
			name string
			telling
		}{{"opening", telling{open: tt.err}}, {"listing", telling{list: tt.err}}, {"calling", telling{call: tt.err}}} {
			for _, m := range methods {
				p := authz.Default()
				b, err := bridge.New(bridge.Config{Source: source.telling, Gate: authz.New(authz.Config{Policy: p})})
				if err != nil {
					t.Fatal(err)
				}
				x := b.Begin(authz.Local("test"), []string{"db"})
				result, err := x.Call(t.Context(), wire.Call{Method: m.method, Params: json.RawMessage(m.params)})
				told := string(result) + strings.Join(x.Notes(), "\n")
				if err != nil {
					told += err.Error()
				}
				if strings.Contains(told, "/home") || strings.Contains(told, "token") {
					t.Errorf("%v, %s, %s: code reads %q", tt.err, source.name, m.method, told)
				}
				if err != nil && !strings.Contains(told, tt.want) {
					t.Errorf("%v, %s, %s: got %q, want %q in it", tt.err, source.name, m.method, told, tt.want)
				}
				_, err = x.Prepare(t.Context())
				var f *bridge.Failure
				if source.call == nil && tt.err != nil && (!errors.As(err, &f) || strings.Contains(err.Error(), "/home") || !strings.Contains(f.Details(), private)) {
					t.Errorf("%v, %s: with servers=: %v", tt.err, source.name, err)
				}
				b.Close()
			}
		}
	}
	// What a server answers to a call that it was granted is the code's to read.
	b, err := bridge.New(bridge.Config{Source: telling{call: fail(nil, answered)}, Gate: authz.New(authz.Config{Policy: authz.Default()})})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, err = b.Begin(authz.Local("test"), []string{"db"}).Call(t.Context(), wire.Call{Method: "call_tool", Params: json.RawMessage(`{"server":"db","tool":"x"}`)})
	if err == nil || !strings.Contains(err.Error(), private) {
		t.Errorf("got %v, want the server's own words", err)
	}
}

// TestFailuresTellTheirCause: what is known and not private is in the message, with the
// server's own words in quotes.
func TestFailuresTellTheirCause(t *testing.T) {
	ended := &upstream.Error{Server: "db", Op: "tools/call x", Kind: upstream.ErrGone, Exit: "exit status 1", LastText: "ENOSPC: no space left on device, write '/home/ada/x'"}
	b, err := bridge.New(bridge.Config{Source: telling{call: ended}, Gate: authz.New(authz.Config{Policy: authz.Default()})})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, err = b.Begin(authz.Local("test"), []string{"db"}).Call(t.Context(), wire.Call{Method: "call_tool", Params: json.RawMessage(`{"server":"db","tool":"x"}`)})
	want := `MCP server "db": ended before it answered: exit status 1; it wrote last: "ENOSPC: no space left on device, write '…'" (the user sees why with: sallyport servers test db)`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
