package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport/internal/bridge"
	"sallyport/internal/policy"
	"sallyport/internal/sandbox"
	"sallyport/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lax accepts the engine of these tests, which isolates nothing.
func lax() *policy.Policy {
	p := &policy.Policy{AllowNoIsolation: true, Servers: []string{"*"}, Require: map[sandbox.Resource]sandbox.Enforcement{}}
	for _, r := range policy.Resources {
		p.Require[r] = sandbox.Absent
	}
	return p
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

var mathTools = []upstream.Tool{
	{Name: "add", Alias: "add", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`), Raw: json.RawMessage(`{"name":"add"}`)},
	{Name: "sleep", Alias: "sleep", InputSchema: json.RawMessage(`{"type":"object","properties":{"seconds":{"type":"number"}}}`), Raw: json.RawMessage(`{"name":"sleep"}`)},
}

func (mathServer) Tools(context.Context) ([]upstream.Tool, error) { return mathTools, nil }

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
