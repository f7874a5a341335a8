//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// statelessServer is a server of the second era that answers calls with the results
// of a script, one after the other.
type statelessServer struct {
	mu      sync.Mutex
	script  []string
	calls   []map[string]json.RawMessage // the parameters of each
	headers []http.Header
	ids     []string
}

func (s *statelessServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
		Params map[string]json.RawMessage
	}
	if err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	result := `{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}`
	switch m.Method {
	case "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
	case "tools/call", "resources/read", "prompts/get":
		s.mu.Lock()
		result = s.script[min(len(s.calls), len(s.script)-1)]
		s.calls, s.headers, s.ids = append(s.calls, m.Params), append(s.headers, r.Header), append(s.ids, string(m.ID))
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func serveStateless(t *testing.T, may inquiry.Takes, script ...string) (*statelessServer, *Server) {
	t.Helper()
	handler := &statelessServer{script: script}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	m := manage(t, Options{May: lets(may)}, over("x", server.URL, definitions.Auto))
	return handler, running(t, m, "x")
}

const answered = `{"resultType":"complete","content":[{"type":"text","text":"ok"}],"contents":[],"messages":[]}`

// needs is a result that needs the members of inputs, and has a state unless that is
// empty.
func needs(inputs, state string) string {
	result := `{"resultType":"input_required"`
	if inputs != "" {
		result += `,"inputRequests":{` + inputs + `}`
	}
	if state != "" {
		result += `,"requestState":` + state
	}
	return result + "}"
}

func TestInputOfACall(t *testing.T) {
	const state = `"st\u0061te \/ \ud83d\ude00 é"`
	calls := map[string]func(context.Context, *Server) (json.RawMessage, error){
		"tools/call": func(ctx context.Context, s *Server) (json.RawMessage, error) {
			return s.CallTool(ctx, "t", json.RawMessage(`{"region":"eu"}`))
		},
		"resources/read": func(ctx context.Context, s *Server) (json.RawMessage, error) { return s.ReadResource(ctx, "a://b") },
		"prompts/get":    func(ctx context.Context, s *Server) (json.RawMessage, error) { return s.GetPrompt(ctx, "p", nil) },
	}
	for method, call := range calls {
		t.Run(method, func(t *testing.T) {
			server, s := serveStateless(t, everything,
				needs(`"a\"b":`+form+`,"c":`+sampling, state), needs("", `"second"`), needs(`"d":`+page, ""), answered)
			host := &fakeHost{takes: everything}
			got, err := call(WithHost(t.Context(), host), s)
			if string(got) != answered || err != nil {
				t.Fatalf("got %s, %v, want %s", got, err, answered)
			}
			const form, sampled = `{"action":"accept","content":{"name":"Ada"}}`, `{"role":"assistant","content":{"type":"text","text":"four"},"model":"m"}`
			want := []struct{ responses, state string }{
				{"", ""}, {`{"a\"b":` + form + `,"c":` + sampled + `}`, state}, {"", `"second"`}, {`{"d":{"action":"accept"}}`, ""},
			}
			if len(server.calls) != len(want) {
				t.Fatalf("got %d calls, want %d", len(server.calls), len(want))
			}
			first := server.calls[0]
			for i, params := range server.calls {
				if got := string(params["requestState"]); got != want[i].state {
					t.Errorf("round %d: got the state %s, want %s", i, got, want[i].state)
				}
				if got := params["inputResponses"]; (got != nil || want[i].responses != "") && !sameJSON(t, got, []byte(want[i].responses)) {
					t.Errorf("round %d: got the responses %s, want %s", i, got, want[i].responses)
				}
				for _, same := range []string{"name", "arguments", "uri", "_meta"} {
					if string(params[same]) != string(first[same]) {
						t.Errorf("round %d: got the %s %s, want %s", i, same, params[same], first[same])
					}
				}
				if method == "tools/call" && server.headers[i].Get("Mcp-Param-Region") != "eu" {
					t.Errorf("round %d: got the headers %v, want the region", i, server.headers[i])
				}
			}
			if ids := slices.Compact(slices.Sorted(slices.Values(server.ids))); len(ids) != len(want) {
				t.Errorf("got the ids %q, want different ones", server.ids)
			}
			if asked, _, _ := host.heard(); len(asked) != 3 {
				t.Errorf("got %d questions, want 3", len(asked))
			}
		})
	}
}

func TestInputThatCannotBeHad(t *testing.T) {
	many := strings.Repeat(`"k":{},`, 3)
	distinct := ""
	for i := range maxInputs + 1 {
		distinct += fmt.Sprintf(`"k%d":%s,`, i, form)
	}
	host := func() *fakeHost { return &fakeHost{takes: everything} }
	tests := []struct {
		name, result string
		may          inquiry.Takes
		host         *fakeHost
		kind         error
		want         string
		calls, asked int
	}{
		{"no host", needs(`"a":`+form, ""), everything, nil, ErrInputRequired, "elicitation/create: the agent's client does not take it", 1, 0},
		{"not allowed", needs(`"a":`+sampling, ""), inquiry.Takes{Forms: true}, host(), ErrInputRequired, "sampling/createMessage: the user does not let", 1, 0},
		{"not taken", needs(`"a":`+form+`,"b":`+roots, ""), everything, &fakeHost{takes: inquiry.Takes{Forms: true}}, ErrInputRequired, "roots/list: the agent's client", 1, 0},
		{"unknown", needs(`"a":{"method":"make/coffee"}`, ""), everything, host(), ErrInputRequired, `"make/coffee": the user does not let`, 1, 0},
		{"invalid", needs(`"a":{"method":"elicitation/create","params":{}}`, ""), everything, host(), ErrInputRequired, "elicitation/create: ", 1, 0},
		{"refused", needs(`"a":`+form, ""), everything, &fakeHost{takes: everything, ask: refusing("enough")}, ErrInputRequired, "elicitation/create: enough", 1, 1},
		{"for nothing", needs("", ""), everything, host(), ErrInputRequired, "does not say for what", 1, 0},
		{"for ever", needs("", `"s"`), everything, host(), ErrInputRequired, "each of 10 rounds", 11, 0},
		{"for ever, without a host", needs("", `"s"`), everything, nil, ErrInputRequired, "each of 10 rounds", 11, 0},
		{"a list", `{"resultType":"input_required","inputRequests":[]}`, everything, host(), ErrBadAnswer, "not an object", 1, 0},
		{"no request", needs(`"a":7`, ""), everything, host(), ErrBadAnswer, `"a" is not valid`, 1, 0},
		{"a key twice", needs(many[:len(many)-1], ""), everything, host(), ErrBadAnswer, "twice", 1, 0},
		{"a long key", needs(`"`+strings.Repeat("k", maxInputKey+1)+`":`+form, ""), everything, host(), ErrBadAnswer, "too long", 1, 0},
		{"too many", needs(distinct[:len(distinct)-1], ""), everything, host(), ErrBadAnswer, "more than 16", 1, 0},
		{"a state that is no string", needs("", "7"), everything, host(), ErrBadAnswer, "requestState", 1, 0},
		{"a large state", needs("", `"`+strings.Repeat("s", maxRequestState)+`"`), everything, host(), ErrBadAnswer, "requestState", 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server, s := serveStateless(t, tt.may, tt.result)
			ctx := t.Context()
			if tt.host != nil {
				ctx = WithHost(ctx, tt.host)
			}
			_, err := s.CallTool(ctx, "t", nil)
			if !errors.Is(err, tt.kind) || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("got %v, want %v with %s", err, tt.kind, tt.want)
			}
			if len(server.calls) != tt.calls {
				t.Errorf("got %d calls, want %d", len(server.calls), tt.calls)
			}
			if tt.host != nil {
				if asked, _, _ := tt.host.heard(); len(asked) != tt.asked {
					t.Errorf("got %d questions, want %d", len(asked), tt.asked)
				}
			}
		})
	}
}

// TestFirstRefusalEndsTheOthers: the questions of a round end when one of them fails,
// and all of them when the call ends.
func TestFirstRefusalEndsTheOthers(t *testing.T) {
	both := needs(`"a":`+form+`,"b":`+sampling, "")
	waiting := make(chan struct{}, 2)
	host := &fakeHost{takes: everything, ask: func(ctx context.Context, r *inquiry.Request) (json.RawMessage, error) {
		if r.Method == inquiry.Sampling {
			<-waiting
			return nil, errors.New("no tokens left")
		}
		waiting <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
	_, s := serveStateless(t, everything, both)
	_, err := s.CallTool(WithHost(t.Context(), host), "t", nil)
	if want := "sampling/createMessage: no tokens left"; !errors.Is(err, ErrInputRequired) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	host.ask = func(ctx context.Context, _ *inquiry.Request) (json.RawMessage, error) {
		cancel()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if _, err := s.CallTool(WithHost(ctx, host), "t", nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrInputRequired) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestWhatACallDeclares: a server of the second era hears with each call what it can
// ask for it.
func TestWhatACallDeclares(t *testing.T) {
	tests := []struct {
		name  string
		may   inquiry.Takes
		host  Host
		takes inquiry.Takes
		logs  string
	}{
		{"no host", everything, nil, inquiry.Takes{}, ""},
		{"all", everything, &fakeHost{takes: everything}, everything, `"info"`},
		{"both", inquiry.Takes{Forms: true, Roots: true}, &fakeHost{takes: inquiry.Takes{Forms: true, Sampling: true}}, inquiry.Takes{Forms: true}, `"info"`},
		{"nothing", inquiry.Takes{}, &fakeHost{takes: everything}, inquiry.Takes{}, `"info"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, s := serveStateless(t, tt.may, answered)
			ctx := t.Context()
			if tt.host != nil {
				ctx = WithHost(ctx, tt.host)
			}
			must(t)(s.CallTool(ctx, "t", nil))
			var meta map[string]json.RawMessage
			if err := json.Unmarshal(server.calls[0]["_meta"], &meta); err != nil {
				t.Fatal(err)
			}
			if got, want := string(meta["io.modelcontextprotocol/clientCapabilities"]), string(tt.takes.Capabilities()); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := string(meta["io.modelcontextprotocol/logLevel"]); got != tt.logs {
				t.Errorf("got the level %q, want %q", got, tt.logs)
			}
			if got := meta["progressToken"] != nil; got != (tt.host != nil) {
				t.Errorf("got a token: %t, want it: %t", got, tt.host != nil)
			}
		})
	}
}

// TestMayIsPartOfAServer: definitions that may ask different things share no server.
func TestMayIsPartOfAServer(t *testing.T) {
	p := pooled(t, Options{May: func(d Definition) inquiry.Takes {
		return inquiry.Takes{Forms: d.Name == "a" || d.Name == "b"}
	}})
	identities := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d"} {
		m := p.NewManager([]Definition{define(t, name, "sdk")}, here())
		identities[name] = m.set.Load().slots[name].view(running(t, m, name)).Identity()
	}
	for _, tt := range []struct {
		one, two string
		same     bool
	}{{"a", "b", true}, {"c", "d", true}, {"a", "c", false}} {
		if got := identities[tt.one] == identities[tt.two]; got != tt.same {
			t.Errorf("%s and %s: got the same: %t, want %t", tt.one, tt.two, got, tt.same)
		}
	}
}

// TestRequestsOverHTTP: over HTTP, the stream says which call a request belongs to,
// so that calls of several clients can ask at once. A request on the stream of the
// connection is about the only call in flight.
func TestRequestsOverHTTP(t *testing.T) {
	both, ready := make(chan struct{}, 2), make(chan struct{})
	server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	add := func(name string, on func(context.Context) context.Context) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			answer, err := r.Session.Elicit(on(ctx), &mcp.ElicitParams{Message: "Who?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(answer.Action, answer.Content["name"])}}}, nil
		})
	}
	add("together", func(ctx context.Context) context.Context {
		both <- struct{}{}
		<-ready
		return ctx
	})
	add("aside", func(context.Context) context.Context { return context.Background() })
	listens := make(chan struct{})
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w = &announcing{w, listens}
		}
		sdk.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	m := manage(t, Options{May: lets(everything)}, over("x", h.URL, definitions.Auto))
	s := running(t, m, "x")
	call := func(name, tool string) {
		host := &fakeHost{origin: name, takes: everything, ask: func(_ context.Context, r *inquiry.Request) (json.RawMessage, error) {
			return r.Check(fmt.Appendf(nil, `{"action":"accept","content":{"name":%q}}`, name))
		}}
		result, err := s.CallTool(WithHost(t.Context(), host), tool, nil)
		if got, want := string(result), "accept"+name; err != nil || !strings.Contains(got, want) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { call("ann", "together") })
	all.Go(func() { call("bob", "together") })
	<-both
	<-both
	close(ready)
	all.Wait()
	<-listens
	call("eve", "aside")
	if s.Info().ProtocolVersion != newestHandshake {
		t.Errorf("got %s, want %s", s.Info().ProtocolVersion, newestHandshake)
	}
}

// announcing is a response that says when it has begun.
type announcing struct {
	http.ResponseWriter
	begun chan struct{}
}

func (a *announcing) WriteHeader(status int) {
	a.ResponseWriter.WriteHeader(status)
	close(a.begun)
}

func (a *announcing) Unwrap() http.ResponseWriter { return a.ResponseWriter }
