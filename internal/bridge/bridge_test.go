package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a source of servers made of Go functions.
type stub struct {
	definitions []upstream.Definition
	servers     map[string]*stubServer
	opened      atomic.Int64
	silent      string // a server that never comes up
}

type stubServer struct {
	mu    sync.Mutex
	tools []tool.Tool
	err   error
	call  func(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error)
}

func (s *stub) Definitions() []upstream.Definition { return s.definitions }

func (s *stub) Open(ctx context.Context, name string) (Server, error) {
	s.opened.Add(1)
	if name == s.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	server := s.servers[name]
	if server == nil {
		return nil, &upstream.Error{Server: name, Kind: upstream.ErrStart, Err: errors.New("no such file")}
	}
	return server, nil
}

func (s *stubServer) Tools(context.Context) ([]tool.Tool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools, s.err
}

func (s *stubServer) CallTool(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	return s.call(ctx, tool, arguments)
}

func newTool(name, description string) tool.Tool {
	return tool.Tool{
		Name: name, Alias: tool.Alias(name), Description: description,
		InputSchema: json.RawMessage(`{"type":"object"}`), Raw: rawTool(name, description),
	}
}

func rawTool(name, description string) json.RawMessage {
	raw, err := json.Marshal(map[string]any{"name": name, "description": description, "inputSchema": map[string]string{"type": "object"}})
	if err != nil {
		panic(err)
	}
	return raw
}

func newStub() *stub {
	echo := func(_ context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(fmt.Sprintf(`{"tool":%q,"arguments":%s}`, tool, arguments)), nil
	}
	return &stub{
		definitions: []upstream.Definition{
			{Name: "broken", Alias: "broken"},
			{Name: "fs", Alias: "fs", Description: "files", Dir: "/data"},
			{Name: "git", Alias: "git"},
			{Name: "off", Alias: "off", Disabled: true},
			{Name: "secret", Alias: "secret"},
		},
		servers: map[string]*stubServer{
			"fs":  {tools: []tool.Tool{newTool("read-file", "reads a file"), newTool("write_file", "writes")}, call: echo},
			"git": {tools: []tool.Tool{newTool("log", "lists commits; reads")}, call: echo},
		},
	}
}

func newBridge(t testing.TB, s *stub, maxCalls int) *Bridge {
	t.Helper()
	p := authz.Default()
	p.Servers = []string{"fs", "git", "broken", "off"}
	b, err := New(Config{Source: s, Gate: authz.New(authz.Config{Policy: p}), MaxCalls: maxCalls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestCheck(t *testing.T) {
	b := newBridge(t, newStub(), 0)
	tests := []struct {
		name string
		want string // part of the message; empty: no error
	}{
		{"fs", ""},
		{"broken", ""}, // that it does not start is found out when it is to
		{"off", "disabled"},
		{"secret", "not allowed by the policy"},
		{"gti", "Unknown MCP server: gti (nearest: git, "},
		{"", "Unknown MCP server: "},
		{"file-fs", "Unknown MCP server: file-fs (nearest: fs, "},
		{strings.Repeat("x", 100000), "…"},
	}
	for _, tt := range tests {
		err := b.Check(t.Context(), self, tt.name)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%.20q: %.300v, want %q", tt.name, err, tt.want)
		}
	}
	none := newBridge(t, &stub{}, 0)
	if err := none.Check(t.Context(), self, "fs"); err == nil || !strings.Contains(err.Error(), "no MCP server is configured") {
		t.Errorf("without servers: %v", err)
	}
	if got, _ := b.Discovered(); len(got) != 3 {
		t.Errorf("%d servers are told to the code: %v", len(got), got)
	}
}

func TestPrepare(t *testing.T) {
	s := newStub()
	b := newBridge(t, s, 0)
	x := b.Begin(self, []string{"git", "fs", "git"})
	if got := fmt.Sprint(x.Names()); got != "[git fs]" {
		t.Errorf("names %v", got)
	}
	first, err := x.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 2 || first[0].Name != "git" || first[1].Cwd != "/data" || first[1].Tools[0].Alias != "read_file" {
		t.Errorf("definitions %+v", first)
	}
	again, err := b.Begin(self, []string{"fs"}).Prepare(t.Context())
	if err != nil || again[0].Version != first[1].Version || &again[0].Tools[0] != &first[1].Tools[0] {
		t.Errorf("the same tools were described anew: %v", err)
	}
	fs := s.servers["fs"]
	fs.mu.Lock()
	fs.tools = append([]tool.Tool{newTool("new", "")}, fs.tools...)
	fs.mu.Unlock()
	changed, err := b.Begin(self, []string{"fs"}).Prepare(t.Context())
	if err != nil || changed[0].Version == first[1].Version || len(changed[0].Tools) != 3 {
		t.Errorf("changed tools: %+v, %v", changed, err)
	}
	// The same content in other memory, as after a server's restart.
	fs.mu.Lock()
	fs.tools = append([]tool.Tool(nil), fs.tools...)
	fs.mu.Unlock()
	restarted, err := b.Begin(self, []string{"fs"}).Prepare(t.Context())
	if err != nil || restarted[0].Version != changed[0].Version {
		t.Errorf("the same content has another version: %v", err)
	}
	if _, err := b.Begin(self, []string{"fs", "broken"}).Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), `MCP server "broken": did not start`) {
		t.Errorf("a server that does not start: %v", err)
	}
	if got, err := b.Begin(self, nil).Prepare(t.Context()); err != nil || got != nil {
		t.Errorf("no servers: %v, %v", got, err)
	}
}

func TestCalls(t *testing.T) {
	tests := []struct {
		name, method, params string
		want                 string // the result, or "kind: part of the message"
	}{
		{"a tool", "call_tool", `{"server":"fs","tool":"read-file","arguments":{"b":1,"a":9007199254740993}}`, `{"tool":"read-file","arguments":{"b":1,"a":9007199254740993}}`},
		{"without arguments", "call_tool", `{"server":"fs","tool":"t","arguments":null}`, `{"tool":"t","arguments":}`},
		{"not granted", "call_tool", `{"server":"git","tool":"log"}`, `denied: Server 'git' is not available: it was not granted to this run; name it in 'servers', or await runtime.load_server('git')`},
		{"not allowed", "call_tool", `{"server":"secret","tool":"x"}`, "denied: not allowed by the policy"},
		{"unknown", "call_tool", `{"server":"fss","tool":"x"}`, "not_found: Unknown MCP server: fss (nearest: fs, "},
		{"no server", "call_tool", `{"tool":"x"}`, "not_found: Unknown MCP server: "},
		{"no tool", "call_tool", `{"server":"fs"}`, "invalid: Missing tool name"},
		{"a tool that is no text", "call_tool", `{"server":"fs","tool":7}`, "invalid: 'tool' must be a string"},
		{"arguments that are a list", "call_tool", `{"server":"fs","tool":"x","arguments":[]}`, "invalid: Arguments must be an object"},
		{"no object", "call_tool", `[]`, "invalid: the request must be an object"},
		{"nothing", "call_tool", ``, "invalid: the request must be an object"},
		{"list", "list_tools", `{"server":"fs"}`, `[{"description":"reads a file","inputSchema":{"type":"object"},"name":"read-file"},{"description":"writes","inputSchema":{"type":"object"},"name":"write_file"}]`},
		{"list without a grant", "list_tools", `{"server":"git"}`, "denied: Server 'git' is not available"},
		{"load what is not allowed", "load_server", `{"name":"secret"}`, "denied: not allowed by the policy"},
		{"load what is disabled", "load_server", `{"name":"off"}`, "denied: disabled"},
		{"load what is unknown", "load_server", `{"name":"gi"}`, "not_found: nearest: git"},
		{"load what does not start", "load_server", `{"name":"broken"}`, "unavailable: did not start"},
		{"documents", "query_tool_docs", `{"server":"git","detail":"summary"}`, `[{"server":"git","serverAlias":"git","tool":"log","toolAlias":"log","description":"lists commits; reads","signature":"()","load":"await runtime.load_server('git')"}]`},
		{"one document in full", "query_tool_docs", `{"server":"fs","tool":"read_file","detail":"full"}`, `[{"server":"fs","serverAlias":"fs","tool":"read-file","toolAlias":"read_file","description":"reads a file","signature":"()","inputSchema":{"type":"object"}}]`},
		{"documents of an unknown tool", "query_tool_docs", `{"server":"fs","tool":"nope"}`, "not_found: Tool 'nope' not found for server fs"},
		{"documents of an unknown server", "query_tool_docs", `{"server":"nope"}`, "not_found: Unknown MCP server: nope"},
		{"documents with a wrong form", "query_tool_docs", `{"server":7}`, "invalid: must be strings"},
		{"an unknown method", "list_servers", `{}`, "unsupported: Unknown RPC type: list_servers"},
		{"a method of any length", strings.Repeat("m", 9999), `{}`, "unsupported: …"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := newBridge(t, newStub(), 0).Begin(self, []string{"fs"})
			result, err := x.Call(t.Context(), wire.Call{Method: tt.method, Params: json.RawMessage(tt.params)})
			if err == nil {
				if string(result) != tt.want {
					t.Errorf("result %s, want %s", result, tt.want)
				}
				return
			}
			var ce *wire.CallError
			if !errors.As(err, &ce) {
				t.Fatalf("%T: %v", err, err)
			}
			kind, part, _ := strings.Cut(tt.want, ": ")
			if ce.Kind != kind || !strings.Contains(ce.Message, part) || len(ce.Message) > 5000 {
				t.Errorf("%s: %.300s, want %s", ce.Kind, ce.Message, tt.want)
			}
		})
	}
}

func TestLoadServerGrantsToOneExecutionOnly(t *testing.T) {
	b := newBridge(t, newStub(), 0)
	x, other := b.Begin(self, nil), b.Begin(self, nil)
	call := wire.Call{Method: "call_tool", Params: json.RawMessage(`{"server":"git","tool":"log","arguments":{}}`)}
	if _, err := x.Call(t.Context(), call); err == nil {
		t.Error("called without a grant")
	}
	result, err := x.Call(t.Context(), wire.Call{Method: "load_server", Params: json.RawMessage(`{"name":"git"}`)})
	if err != nil {
		t.Fatal(err)
	}
	var server wire.Server
	if err := json.Unmarshal(result, &server); err != nil || server.Alias != "git" || len(server.Tools) != 1 {
		t.Errorf("definition %s", result)
	}
	if _, err := x.Call(t.Context(), call); err != nil {
		t.Errorf("after load_server: %v", err)
	}
	if _, err := other.Call(t.Context(), call); err == nil {
		t.Error("another execution has the grant too")
	}
}

func TestKindsOfFailure(t *testing.T) {
	tests := []struct {
		err  error
		kind string
	}{
		{&upstream.Error{Err: &jsonrpc.Error{Code: -32602, Message: "bad"}}, wire.KindServer},
		{&authz.Denied{Decision: authz.Decision{Reason: errors.New("no")}}, wire.KindDenied},
		{&upstream.Error{Kind: upstream.ErrInvalidArguments}, wire.KindInvalid},
		{&upstream.Error{Kind: upstream.ErrTimeout}, wire.KindTimeout},
		{&upstream.Error{Kind: upstream.ErrGone}, wire.KindUnavailable},
		{&upstream.Error{Kind: upstream.ErrInputRequired}, wire.KindUnsupported},
		{&upstream.Error{Kind: upstream.ErrBadAnswer}, wire.KindServer},
		{errors.New(strings.Repeat("long ", 10000)), wire.KindUnavailable},
	}
	for _, tt := range tests {
		s := newStub()
		s.servers["fs"].call = func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return nil, tt.err }
		x := newBridge(t, s, 0).Begin(self, []string{"fs"})
		_, err := x.Call(t.Context(), wire.Call{Method: "call_tool", Params: json.RawMessage(`{"server":"fs","tool":"t"}`)})
		var ce *wire.CallError
		if !errors.As(err, &ce) || ce.Kind != tt.kind || len(ce.Message) > 5000 {
			t.Errorf("%.100v: %.300v, want kind %s", tt.err, err, tt.kind)
		}
	}
}

func TestCallsOfOneExecutionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		s := newStub()
		var now, peak, done atomic.Int64
		s.servers["fs"].call = func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			peak.Store(max(peak.Load(), now.Add(1)))
			defer now.Add(-1)
			select {
			case <-time.After(time.Second):
				done.Add(1)
				return json.RawMessage(`{}`), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		x := newBridge(t, s, most).Begin(self, []string{"fs"})
		call := wire.Call{Method: "call_tool", Params: json.RawMessage(`{"server":"fs","tool":"t"}`)}
		var all sync.WaitGroup
		for range 3 * most {
			all.Go(func() {
				if _, err := x.Call(t.Context(), call); err != nil {
					t.Error(err)
				}
			})
		}
		began := time.Now()
		all.Wait()
		if peak.Load() != most || time.Since(began) != 3*time.Second {
			t.Errorf("%d at a time, %v", peak.Load(), time.Since(began))
		}
		// The end of an execution ends those that work and those that wait.
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 * most {
			all.Go(func() {
				_, err := x.Call(ctx, call)
				var ce *wire.CallError
				if !errors.As(err, &ce) || ce.Kind != wire.KindCancelled {
					t.Errorf("cancelled: %v", err)
				}
			})
		}
		synctest.Wait()
		done.Store(0)
		cancel()
		all.Wait()
		if done.Load() != 0 {
			t.Errorf("%d calls finished", done.Load())
		}
	})
}

func FuzzParams(f *testing.F) {
	f.Add("call_tool", []byte(`{"server":"fs","tool":"t","arguments":{"a":[1,{}]}}`))
	f.Add("search_tool_docs", []byte(`{"query":"x","limit":1}`))
	f.Add("query_tool_docs", []byte(`{"server":"fs","tool":null}`))
	f.Add("load_server", []byte(`{"name":"git"}`))
	f.Fuzz(func(t *testing.T, method string, params []byte) {
		s := newStub()
		s.servers["fs"].call = func(_ context.Context, _ string, arguments json.RawMessage) (json.RawMessage, error) {
			if len(arguments) > 0 && (!json.Valid(arguments) || arguments[0] != '{') {
				t.Errorf("arguments %q reached a server", arguments)
			}
			return json.RawMessage(`{}`), nil
		}
		s.servers["git"].call = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			t.Error("a server was called that was not granted")
			return nil, nil
		}
		x := newBridge(t, s, 0).Begin(self, []string{"fs"})
		result, err := x.Call(context.Background(), wire.Call{Method: method, Params: params})
		if err == nil && !json.Valid(result) {
			t.Errorf("%s %q: result %q", method, params, result)
		}
		var ce *wire.CallError
		if err != nil && !errors.As(err, &ce) {
			t.Errorf("%s %q: %T", method, params, err)
		}
	})
}

func TestNearest(t *testing.T) {
	names := []string{"filesystem", "github", "gitlab", "memory"}
	for wanted, want := range map[string]string{
		"githb": "github gitlab", "GitHub": "github gitlab", "file": "filesystem gitlab", "": "github gitlab",
	} {
		if got := strings.Join(Nearest(wanted, names, 2), " "); got != want {
			t.Errorf("%q: %s, want %s", wanted, got, want)
		}
	}
}
