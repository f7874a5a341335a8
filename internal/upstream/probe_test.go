//go:build unix

package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// A webServer is one HTTP server that is odd in how it answers a method.
type webServer struct {
	quiet bool // it keeps no list of what it was asked
	mu    sync.Mutex
	asked []string
	odd   map[string]func(w http.ResponseWriter, r *http.Request, id string)
}

func (s *webServer) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, " ")
}

func webAnswer(w http.ResponseWriter, id, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func webError(status int, code int) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, id string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no","data":{"supported":["2026-07-28"]}}}`, id, code)
	}
}

func webStatus(status int) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, _ *http.Request, _ string) { http.Error(w, "no", status) }
}

func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method, id := r.Method, ""
	if method == http.MethodPost {
		m := peekRequest(r)
		method, id = m.Method, string(m.ID)
	}
	s.mu.Lock()
	if !s.quiet {
		s.asked = append(s.asked, method)
	}
	odd := s.odd[method]
	s.mu.Unlock()
	switch {
	case odd != nil:
		odd(w, r, id)
	case method == "initialize":
		webAnswer(w, id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}`)
	case method == "server/discover":
		webAnswer(w, id, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case method == "tools/list":
		webAnswer(w, id, `{"tools":[{"name":"t"}]}`)
	case id == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		webAnswer(w, id, okResult)
	}
}

func TestProbesOverHTTP(t *testing.T) {
	type odd = map[string]func(http.ResponseWriter, *http.Request, string)
	silent := func(_ http.ResponseWriter, r *http.Request, _ string) { <-r.Context().Done() }
	hangUp := func(http.ResponseWriter, *http.Request, string) { panic(http.ErrAbortHandler) }
	var once sync.Once
	refusedOnce := func(w http.ResponseWriter, r *http.Request, id string) {
		refused := false
		once.Do(func() { refused = true })
		if refused {
			webError(400, codeUnsupportedVersion)(w, r, id)
			return
		}
		webAnswer(w, id, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	}
	noEvents := webStatus(http.StatusMethodNotAllowed)
	tests := []struct {
		name  string
		odd   odd
		want  string // the version, or what the error says
		asked string
	}{
		{"both eras", nil, "2026-07-28", "server/discover"},
		{"silent", odd{"server/discover": silent}, "2025-06-18", "server/discover initialize notifications/initialized"},
		{"hangs up", odd{"server/discover": hangUp}, "2025-06-18", ""},
		{"does not know it", odd{"server/discover": webError(200, -32601)}, "2025-06-18", ""},
		{"bad request", odd{"server/discover": webStatus(400)}, "2025-06-18", ""},
		{"breaks", odd{"server/discover": webStatus(500)}, "2025-06-18", ""},
		{"another version", odd{"server/discover": func(w http.ResponseWriter, _ *http.Request, id string) {
			webAnswer(w, id, `{"supportedVersions":["2027-01-01"]}`)
		}}, "2025-06-18", ""},
		{"nonsense", odd{"server/discover": func(w http.ResponseWriter, _ *http.Request, id string) { webAnswer(w, id, `7`) }}, "2025-06-18", ""},
		{"refuses once", odd{"server/discover": refusedOnce}, "2026-07-28", "server/discover server/discover"},
		{"only stateless", odd{"initialize": webError(404, -32601)}, "2026-07-28", ""},
		{"knows nothing", odd{"server/discover": webError(404, -32601), "initialize": webError(400, -32600)}, "initialize: no (error -32600)", "server/discover initialize"},
		{"not found", odd{"server/discover": webStatus(404), "initialize": webStatus(404), "GET": webStatus(404)},
			"HTTP status 404 Not Found: no (and over the older HTTP with server-sent events: HTTP status 404", "server/discover initialize GET"},
		{"breaks at all", odd{"server/discover": webStatus(500), "initialize": webStatus(503)}, "HTTP status 503", "server/discover initialize"},
		{"silent for good", odd{"server/discover": silent, "initialize": silent, "GET": noEvents}, "no answer within 4s", "server/discover initialize"},
		{"unauthorized", odd{"server/discover": webStatus(401)}, ErrUnauthorized.Error(), "server/discover"},
		{"redirect", odd{"server/discover": func(w http.ResponseWriter, r *http.Request, _ string) {
			http.Redirect(w, r, "http://127.0.0.2:1/", http.StatusTemporaryRedirect)
		}}, "redirects to another address, http://127.0.0.2:1", "server/discover"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := &webServer{odd: test.odd}
			web := httptest.NewServer(server)
			t.Cleanup(func() {
				web.CloseClientConnections()
				web.Close()
			})
			opts := Options{StartTimeout: 30 * time.Second}
			if test.name == "silent for good" {
				opts.StartTimeout = 4 * time.Second
			}
			if strings.HasPrefix(test.name, "silent") {
				opts.Probe = 100 * time.Millisecond
			}
			m := manage(t, opts, over("x", web.URL, definitions.Auto))
			s, err := m.Server(t.Context(), "x")
			if err != nil {
				if !errors.Is(err, ErrStart) || !strings.Contains(err.Error(), test.want) {
					t.Error(err)
				}
			} else if s.Info().ProtocolVersion != test.want {
				t.Errorf("%+v", s.Info())
			} else if _, err := s.CallTool(t.Context(), "t", nil); err != nil {
				t.Error(err)
			}
			if !strings.HasPrefix(server.said(), test.asked) || err != nil && server.said() != test.asked {
				t.Errorf("asked %s, want %s", server.said(), test.asked)
			}
		})
	}
}

// TestAServerIsUpgraded: what was remembered of a server does not keep us from
// it when it speaks otherwise now.
func TestAServerIsUpgraded(t *testing.T) {
	server := &webServer{odd: map[string]func(http.ResponseWriter, *http.Request, string){"initialize": webError(404, -32601)}}
	web := httptest.NewServer(server)
	defer web.Close()
	for _, known := range []era{eraHandshake, eraEvents, eraStateless} {
		m := manage(t, Options{}, over("x", web.URL, definitions.Auto))
		m.set.Load().slots["x"].entry.era = known
		if s := running(t, m, "x"); s.Info().ProtocolVersion != stateless {
			t.Errorf("%v: %+v", known, s.Info())
		}
	}
}

// TestHeadersThatASchemaWants: a server that changed what it wants in headers is
// asked for its tools again.
func TestHeadersThatASchemaWants(t *testing.T) {
	var mu sync.Mutex
	header := "Region"
	server := &webServer{}
	server.odd = map[string]func(http.ResponseWriter, *http.Request, string){
		"tools/list": func(w http.ResponseWriter, _ *http.Request, id string) {
			mu.Lock()
			defer mu.Unlock()
			webAnswer(w, id, `{"tools":[{"name":"t","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"`+header+`"}}}},
				{"name":"bad","inputSchema":{"type":"object","properties":{"r":{"type":"number","x-mcp-header":"R"}}}}]}`)
		},
		"tools/call": func(w http.ResponseWriter, r *http.Request, id string) {
			mu.Lock()
			defer mu.Unlock()
			if r.Header.Get("Mcp-Param-"+header) != "eu" {
				webError(400, codeHeaderMismatch)(w, r, id)
				return
			}
			webAnswer(w, id, okResult)
		},
	}
	web := httptest.NewServer(server)
	defer web.Close()
	m := manage(t, Options{}, over("x", web.URL, definitions.Auto))
	s := running(t, m, "x")
	call := func() {
		t.Helper()
		if _, err := s.CallTool(t.Context(), "t", []byte(`{"r":"eu"}`)); err != nil {
			t.Error(err)
		}
	}
	call()
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) != 1 {
		t.Error(tools, err)
	}
	mu.Lock()
	header = "Area"
	mu.Unlock()
	call()
	call()
	if got := server.said(); got != "server/discover tools/list tools/call tools/call tools/list tools/call tools/call" {
		t.Error(got)
	}
}

// TestAddressesThatAreRefused: the guard's word is what the user reads.
func TestAddressesThatAreRefused(t *testing.T) {
	for url, want := range map[string]string{
		"http://169.254.169.254/latest/meta-data": "link-local, where clouds have their metadata services",
		"http://intranet.example/mcp":             "plain http to intranet.example",
		"gopher://x":                              "must begin with https://",
	} {
		m := manage(t, Options{}, over("x", url, definitions.Auto))
		_, err := m.Server(t.Context(), "x")
		if !errors.Is(err, ErrStart) || !errors.Is(err, remote.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestABodyThatIsNoMessage keeps what a server sent where it can be found.
func TestABodyThatIsNoMessage(t *testing.T) {
	server := &webServer{odd: map[string]func(http.ResponseWriter, *http.Request, string){
		"tools/call": func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "Traceback (most recent call last)")
		},
	}}
	web := httptest.NewServer(server)
	defer web.Close()
	m := manage(t, Options{}, over("x", web.URL, definitions.Auto))
	s := running(t, m, "x")
	if _, err := s.CallTool(t.Context(), "t", nil); !errors.Is(err, ErrBadAnswer) {
		t.Error(err)
	}
	if d := s.Diagnosis(); !strings.Contains(d.Stdout, "Traceback") || d.Exit != "" {
		t.Errorf("%+v", d)
	}
}
