//go:build unix

package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// clientServers are the servers of one client: who tells which client it is.
type clientServers struct {
	names []string
	who   string
}

func (s clientServers) Definitions() []upstream.Definition {
	var out []upstream.Definition
	for _, name := range s.names {
		out = append(out, upstream.Definition{Name: name, Alias: name})
	}
	return out
}

func (s clientServers) Open(context.Context, string) (bridge.Server, error) { return s, nil }

func (clientServers) Tools(context.Context) ([]tool.Tool, error) {
	return []tool.Tool{{Name: "who", Alias: "who", InputSchema: json.RawMessage(`{"type":"object"}`), Raw: json.RawMessage(`{"name":"who"}`)}}, nil
}

func (s clientServers) CallTool(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, s.who), nil
}

// TestClientsShareSessions runs code of several clients, each with its own
// servers, in one broker: they share named sessions and nothing else.
func TestClientsShareSessions(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	client := func(who string, names ...string) func(session, code string, servers ...string) *Result {
		servers, err := bridge.New(bridge.Config{Source: clientServers{names, who}, Gate: lax()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(servers.Close)
		c := b.Client(servers)
		return func(session, code string, servers ...string) *Result {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return c.Execute(ctx, Request{Principal: user, ClientID: who, Session: session, Servers: servers, Submission: Submission{Code: code, Timeout: 30 * time.Second}})
		}
	}
	ann, bob, none := client("ann", "notes", "mail"), client("bob", "notes", "shop"), client("none")
	names := "print(sorted(runtime.discovered_servers()))"
	want(t, ann("team", "x = 1; "+names), Success, 0, "['mail', 'notes']")
	want(t, bob("team", "print(x); "+names), Success, 0, "1\n['notes', 'shop']")
	want(t, none("team", names), Success, 0, "[]")
	want(t, ann("team", names), Success, 0, "['mail', 'notes']")

	// The same name leads each client to its own server, in the same sandbox.
	want(t, ann("team", "print(await mcp_notes.who())", "notes"), Success, 0, "ann")
	want(t, bob("team", "print(await mcp_notes.who())", "notes"), Success, 0, "bob")
	if r := bob("team", "await runtime.load_server('mail')"); r.Status != Failed {
		t.Errorf("another client's server: got %+v, want it unknown", r)
	}
	if r := none("team", "print(await mcp_notes.who())"); r.Status != Failed {
		t.Errorf("a module that another client's code left: got %+v, want its call refused", r)
	}

	want(t, ann("", "y = 'ann'"), Success, 0, "")
	if r := bob("", "y"); r.Status != Failed {
		t.Errorf("another client's own session: got %+v, want no variable", r)
	}
	if n := e.starts.Load(); n != 3 {
		t.Errorf("got %d sandboxes, want 3: one session shared, two of their own", n)
	}
}

func TestRequestWithoutServers(t *testing.T) {
	t.Parallel()
	b, err := New(Config{Gate: lax(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "1"}})
	if want := "without its client's servers"; r.Status != Failed || !strings.Contains(r.Error, want) {
		t.Errorf("got %+v, want an error with %q", r, want)
	}
}
