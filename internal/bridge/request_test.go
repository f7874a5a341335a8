package bridge

import (
	"encoding/json"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

func parseRequest(t *testing.T, entry string) upstream.Definition {
	t.Helper()
	d, err := definitions.Parse("x", json.RawMessage(entry), definitions.Options{}, false)
	if err != nil {
		t.Fatalf("%s: %v", entry, err)
	}
	return d
}

// TestRequestsThatPoliciesAllow: a pattern allows exactly the command lines and
// URLs that it names, and no definition that says more.
func TestRequestsThatPoliciesAllow(t *testing.T) {
	const npx = "npx -y @modelcontextprotocol/server-*"
	for _, tt := range []struct {
		pattern, entry string
		want           bool
	}{
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-memory"]}`, true},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x","evil"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x evil"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x@npm:evil"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x/../../evil"]}`, false},
		{npx, `{"command":"npx -y","args":["@modelcontextprotocol/server-x"]}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x"],"env":{"NODE_OPTIONS":"--require ./evil"}}`, false},
		{npx, `{"command":"npx","args":["-y","@modelcontextprotocol/server-x"],"cwd":"/tmp"}`, false},
		{npx + " ...", `{"command":"npx","args":["-y","@modelcontextprotocol/server-x","/data","--flag"]}`, true},
		{npx + " ...", `{"command":"npx","args":["-y","@modelcontextprotocol/server-x"]}`, true},
		{npx + " ...", `{"command":"npx","args":["-y","evil"]}`, false},
		{"...", `{"command":"evil"}`, false},
		{"*", `{"command":"/bin/sh"}`, false},
		{"uvx mcp-*-server", `{"command":"uvx","args":["mcp-git-server"]}`, true},
		{"uvx mcp-*-server", `{"command":"uvx","args":["mcp--server"]}`, false},
		{"https://*.example.com/mcp", `{"url":"https://a.example.com/mcp"}`, true},
		{"https://*.example.com/mcp", `{"url":"https://a.b.example.com/mcp","headers":{"X":"y"}}`, true},
		{"https://*.example.com/mcp", `{"url":"https://evil.com/.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://evil.com:1/.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://u@a.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"http://a.example.com/mcp"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://a.example.com/mcp?x=1"}`, false},
		{"https://*.example.com/mcp", `{"url":"https://a.example.com/mcp","tls":{"insecure":true}}`, false},
		{"https://x/*", `{"url":"https://x/a"}`, true},
		{"https://x/*", `{"url":"https://x/a/b"}`, false},
		{"https://x/*", `{"command":"https://x/a"}`, true},
	} {
		gate := authz.New(authz.Config{Policy: authz.Default(), Requests: []string{"no such thing", tt.pattern}})
		want := authz.Ask
		if tt.want {
			want = authz.Allow
		}
		if got := gate.Decide(self, requestFacts(parseRequest(t, tt.entry))); got.Effect != want {
			t.Errorf("%s and %s: got %v, want %v", tt.pattern, tt.entry, got.Effect, want)
		}
	}
	gate := authz.New(authz.Config{Policy: authz.Default()})
	if got := gate.Decide(self, requestFacts(parseRequest(t, `{"command":"x"}`))); got.Effect != authz.Ask {
		t.Errorf("without patterns: got %v, want ask", got.Effect)
	}
}
