//go:build unix

package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// sdkOverHTTP serves the SDK's own server, in the revisions that are given, and
// counts the methods that it is asked.
type sdkOverHTTP struct {
	*httptest.Server
	mu      sync.Mutex
	methods []string
	headers []http.Header
}

func (s *sdkOverHTTP) asked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.methods, " ")
}

func (s *sdkOverHTTP) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.methods, s.headers = nil, nil
}

func sdkHTTP(t testing.TB, kind, versions string) *sdkOverHTTP {
	t.Helper()
	t.Setenv("VERSIONS", versions)
	server := sdkServer()
	get := func(*http.Request) *mcp.Server { return server }
	var h http.Handler
	switch kind {
	case "stateful":
		h = mcp.NewStreamableHTTPHandler(get, nil)
	case "json":
		h = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true})
	case "stateless":
		h = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true})
	case "sse":
		h = mcp.NewSSEHandler(get, nil)
	}
	out := &sdkOverHTTP{}
	out.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method
		if r.Method == http.MethodPost {
			what = peekRequest(r).Method
		}
		out.mu.Lock()
		out.methods = append(out.methods, what)
		out.headers = append(out.headers, r.Header.Clone())
		out.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		out.CloseClientConnections()
		out.Close()
	})
	return out
}

func over(name, url string, transport definitions.Transport) Definition {
	return definitions.NewRemote(name, "", definitions.Remote{Transport: transport, URL: url})
}

func TestRevisionsOverHTTP(t *testing.T) {
	tests := []struct {
		kind, versions, protocol, transport string
		asked                               string
	}{
		{"stateful", "2025-11-25,2025-06-18", "2025-11-25", "streamable HTTP", "server/discover initialize notifications/initialized "},
		{"json", "2025-06-18", "2025-06-18", "streamable HTTP", ""},
		{"stateful", "2025-03-26", "2025-03-26", "streamable HTTP", ""},
		{"stateless", "2025-11-25", "2025-11-25", "streamable HTTP", ""},
		{"stateless", "2026-07-28,2025-11-25", "2026-07-28", "streamable HTTP", ""},
		{"sse", "2024-11-05", "2024-11-05", "HTTP with SSE", ""},
		{"sse", "2025-11-25", "2025-11-25", "HTTP with SSE", ""},
	}
	for _, test := range tests {
		t.Run(test.kind+" "+test.versions, func(t *testing.T) {
			server := sdkHTTP(t, test.kind, test.versions)
			logged := new(logBuffer)
			m := manage(t, Options{Log: logged.logger()}, over("x", server.URL, definitions.Auto))
			s := running(t, m, "x")
			if i := s.Info(); i.ProtocolVersion != test.protocol || i.Transport != test.transport || i.Server.Name != "sdk" || i.PID != 0 {
				t.Errorf("%+v", i)
			}
			tools, err := s.Tools(t.Context())
			if err != nil || len(tools) < 5 {
				t.Fatal(tools, err)
			}
			args := `{"zebra":9007199254740993,"apple":"x"}`
			if got := text(t, must(t)(s.CallTool(t.Context(), "echo", json.RawMessage(args)))); got != args {
				t.Error(got)
			}
			if got := must(t)(s.CallTool(t.Context(), "fail", nil)); !strings.Contains(string(got), `"isError":true`) {
				t.Errorf("%s", got)
			}
			_, err = s.CallTool(t.Context(), "nothing-like-this", nil)
			var answered *jsonrpc.Error
			if !errors.As(err, &answered) {
				t.Error(err)
			}
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if _, err := s.CallTool(t.Context(), "sleep", json.RawMessage(`{"MS":20}`)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if test.asked != "" && !strings.HasPrefix(server.asked(), test.asked) {
				t.Errorf("%s\nwant %s", server.asked(), test.asked)
			}
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			// A change of the tools is noticed.
			if _, err := s.CallTool(t.Context(), "grow", nil); err != nil {
				t.Fatal(err)
			}
			if test.kind != "stateless" || test.protocol == stateless {
				waitFor(t, func() bool {
					tools, err := s.Tools(t.Context())
					return err == nil && hasTool(tools, "new_tool")
				})
			}
		})
	}
}

func TestCancellationOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: it failed on a busy machine")
	}
	for _, test := range []struct{ kind, versions string }{{"stateful", "2025-11-25"}, {"stateless", "2026-07-28"}, {"sse", "2024-11-05"}} {
		t.Run(test.kind, func(t *testing.T) {
			began, ended, finish := make(chan struct{}), make(chan struct{}), make(chan struct{})
			defer close(finish)
			server := mcp.NewServer(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ServerOptions{SupportedProtocolVersions: []string{test.versions}})
			server.AddTool(&mcp.Tool{Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				close(began)
				select {
				case <-ctx.Done():
					close(ended)
				case <-finish:
				}
				return nil, ctx.Err()
			})
			get := func(*http.Request) *mcp.Server { return server }
			var h http.Handler = mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: test.kind == "stateless", PropagateRequestCancellation: true})
			if test.kind == "sse" {
				h = mcp.NewSSEHandler(get, nil)
			}
			web := httptest.NewServer(h)
			t.Cleanup(func() { // after the Manager has given its session back
				web.CloseClientConnections()
				web.Close()
			})
			m := manage(t, Options{}, over("x", web.URL, definitions.Auto))
			s := running(t, m, "x")
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-began
				cancel()
			}()
			if _, err := s.CallTool(ctx, "wait", nil); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Error("the cancellation did not reach the server")
			}
		})
	}
}

func TestErasAreRemembered(t *testing.T) {
	dir := store.At(t.TempDir())
	server := sdkHTTP(t, "stateful", "2025-11-25")
	def := over("x", server.URL, definitions.Auto)
	for i, want := range []string{"server/discover initialize", "initialize notifications/initialized"} {
		server.forget()
		m := manage(t, Options{Eras: dir}, def)
		running(t, m, "x")
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(server.asked(), want) {
			t.Errorf("%d: %s", i, server.asked())
		}
		// The stream of a server's own messages opens beside the calls: its GET
		// may arrive last.
		if !strings.HasSuffix(strings.TrimSuffix(server.asked(), " GET"), "DELETE") {
			t.Errorf("the session was not given back: %s", server.asked())
		}
	}
	// Another definition of the name is asked anew.
	server.forget()
	m := manage(t, Options{Eras: dir}, over("x", server.URL+"/?a=b", definitions.Auto))
	running(t, m, "x")
	if !strings.HasPrefix(server.asked(), "server/discover") {
		t.Error(server.asked())
	}
}
