package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// user is who the requests of these tests are for.
var user = authz.Local("test")

// lax accepts the engine of these tests, which isolates nothing, and these packages.
func lax(packages ...string) *authz.Gate { return laxTo(nil, packages...) }

// laxTo is lax with decisions that are published.
func laxTo(j *journal.Journal, packages ...string) *authz.Gate {
	p := &authz.Policy{AllowNoIsolation: true, Servers: []string{"*"}, Require: map[sandbox.Resource]sandbox.Enforcement{}}
	for _, r := range authz.Resources {
		p.Require[r] = sandbox.Absent
	}
	return authz.New(authz.Config{Policy: p, Packages: func() []string { return packages }, Journal: j})
}

// parts are what a broker is made of.
type parts struct {
	Config
	servers  bridge.Source
	packages bridge.Packages
	sessions session.Options
}

func newParts() *parts {
	return &parts{Config: Config{Gate: lax(), Logger: slog.New(slog.DiscardHandler)}, servers: servers{}}
}

// desk is a Broker with clients that all have the same servers.
type desk struct {
	*Broker
	t       testing.TB
	servers *bridge.Bridge

	mu   sync.Mutex
	here map[string]*Client
}

// as returns the client with that ID, which comes if it is not there.
func (d *desk) as(id string) *Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.here[id]; c != nil {
		if !c.isGone() {
			return c
		}
		<-c.ended // its executions hold its ID
	}
	c, err := d.NewClient(id, d.servers)
	if err != nil {
		d.t.Error(err)
		return nil
	}
	d.here[id] = c
	return c
}

// Execute is that of the client c.
func (d *desk) Execute(ctx context.Context, req Request) *Result { return d.as("c").Execute(ctx, req) }

// Submit is that of the client c.
func (d *desk) Submit(req Request) func(context.Context) *Result { return d.as("c").Submit(req) }

func (p *parts) broker(t testing.TB) *desk {
	t.Helper()
	servers, err := bridge.New(bridge.Config{Source: p.servers, Gate: p.Gate, Packages: p.packages, Log: p.Logger})
	if err != nil {
		t.Fatal(err)
	}
	if p.Template != nil {
		p.sessions.Logger = p.Logger
		p.Sessions = session.NewSet(p.sessions)
	}
	b, err := New(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		servers.Close()
	})
	return &desk{Broker: b, t: t, servers: servers, here: map[string]*Client{}}
}

// servers is a source of two servers made of Go functions.
type servers struct{}

func (servers) Definitions() []upstream.Definition {
	return []upstream.Definition{
		{Name: "broken", Alias: "broken", Description: "does not start"},
		{Name: "math", Alias: "math", Description: "counts"},
	}
}

func (servers) Open(_ context.Context, name string) (bridge.Server, error) {
	if name != "math" {
		return nil, &upstream.Error{Server: name, Kind: upstream.ErrStart, Err: errors.New("no such file")}
	}
	return mathServer{}, nil
}

type mathServer struct{}

var mathTools = []tool.Tool{
	{Name: "add", Alias: "add", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`), Raw: json.RawMessage(`{"name":"add"}`)},
	{Name: "sleep", Alias: "sleep", InputSchema: json.RawMessage(`{"type":"object","properties":{"seconds":{"type":"number"}}}`), Raw: json.RawMessage(`{"name":"sleep"}`)},
}

func (mathServer) Tools(context.Context) ([]tool.Tool, error) { return mathTools, nil }

func (mathServer) CallTool(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	var args struct{ A, B, Seconds float64 }
	if err := json.Unmarshal(arguments, &args); err != nil {
		return nil, err
	}
	if tool == "sleep" {
		select {
		case <-time.After(time.Duration(args.Seconds * float64(time.Second))):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"%g"}],"structuredContent":{"result":%g}}`, args.A+args.B, args.A+args.B)), nil
}

// dependsOnSpeed leaves a test to .ci/full, for a reason.
func dependsOnSpeed(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("depends on speed: " + why)
	}
}
