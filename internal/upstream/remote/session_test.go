package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// sessions is a server that knows one session at a time.
type sessions struct {
	mu       sync.Mutex
	current  string
	count    int
	version  string
	lost     int // the status for a session that it does not know
	log      []string
	requests map[string]func(w http.ResponseWriter, r *http.Request, p posted)
}

func (s *sessions) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = "nobody's"
}

func (s *sessions) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := posted{Method: r.Method}
	if r.Method == http.MethodPost {
		p = readPosted(r)
	}
	id := r.Header.Get("Mcp-Session-Id")
	s.mu.Lock()
	s.log = append(s.log, strings.TrimSpace(p.Method+" "+id))
	known := id == s.current
	if p.Method == "initialize" {
		s.count++
		s.current = fmt.Sprintf("session-%d", s.count)
		known = id == ""
		w.Header().Set("Mcp-Session-Id", s.current)
	}
	version, handle := s.version, s.requests[p.Method]
	s.mu.Unlock()
	switch {
	case !known:
		http.Error(w, "no such session", s.lost)
	case handle != nil:
		handle(w, r, p)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case p.Method == "initialize":
		writeJSON(w, p, `{"protocolVersion":"`+version+`"}`)
	case p.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	default:
		writeJSON(w, p, `{"session":"`+id+`"}`)
	}
}

func initialized(t *testing.T, c *Streamable) {
	t.Helper()
	if _, err := c.Call(t.Context(), "initialize", json.RawMessage(`{"protocolVersion":"2025-11-25"}`)); err != nil {
		t.Fatal(err)
	}
	c.Speaks("2025-11-25")
	if err := c.Notify(t.Context(), "notifications/initialized", nil); err != nil {
		t.Fatal(err)
	}
}

func TestALostSessionIsReplaced(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		s := &sessions{version: "2025-11-25", lost: status}
		server := serve(t, s.ServeHTTP)
		var gaps atomic.Int32
		c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{OnGap: func() { gaps.Add(1) }})
		initialized(t, c)
		s.forget()
		var wg sync.WaitGroup
		for range 8 { // one new session for all
			wg.Go(func() {
				if got, err := c.Call(t.Context(), "tools/call", nil); err != nil || string(got) != `{"session":"session-2"}` {
					t.Errorf("%s %v", got, err)
				}
			})
		}
		wg.Wait()
		if gaps.Load() != 1 {
			t.Errorf("%d gaps", gaps.Load())
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		said := s.said()
		if said[len(said)-1] != "DELETE session-2" || !slices.Contains(said, "notifications/initialized session-2") {
			t.Error(said)
		}
		if _, err := c.Call(t.Context(), "tools/call", nil); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Error(err)
		}
	}
}

func TestASessionThatCannotBeReplaced(t *testing.T) {
	s := &sessions{version: "2025-11-25", lost: http.StatusNotFound}
	server := serve(t, s.ServeHTTP)
	c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
	initialized(t, c)
	s.forget()
	s.mu.Lock()
	s.version = "2025-03-26" // another server has taken its place
	s.mu.Unlock()
	if _, err := c.Call(t.Context(), "tools/call", nil); !errors.Is(err, jsonrpc.ErrClosed) || !strings.Contains(err.Error(), `speaks "2025-03-26" now instead of 2025-11-25`) {
		t.Error(err)
	}
	select {
	case <-c.Done():
	default:
		t.Error("the connection goes on")
	}

	// One that never remembers: the call fails, once.
	s = &sessions{version: "2025-11-25", lost: http.StatusNotFound, requests: map[string]func(http.ResponseWriter, *http.Request, posted){}}
	s.requests["tools/call"] = func(w http.ResponseWriter, _ *http.Request, _ posted) { http.NotFound(w, nil) }
	server = serve(t, s.ServeHTTP)
	c = streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
	initialized(t, c)
	if _, err := c.Call(t.Context(), "tools/call", nil); !errors.Is(err, errSessionLost) {
		t.Error(err)
	}
	if n := strings.Count(strings.Join(s.said(), "\n"), "tools/call"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

func TestSessionsWithStrangeNames(t *testing.T) {
	for _, id := range []string{"a b", "ü", strings.Repeat("x", maxSessionID+1)} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Mcp-Session-Id"] = []string{id}
			writeJSON(w, readPosted(r), `{}`)
		})
		c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
		if _, err := c.Call(t.Context(), "initialize", nil); !errors.Is(err, jsonrpc.ErrMalformed) {
			t.Errorf("%.20q: %v", id, err)
		}
	}
}

func TestAStreamIsResumed(t *testing.T) {
	var pending posted
	var asked []string
	s := &sessions{version: "2025-11-25", lost: http.StatusNotFound, requests: map[string]func(http.ResponseWriter, *http.Request, posted){
		"tools/call": func(w http.ResponseWriter, _ *http.Request, p posted) {
			pending = p
			stream(w, "id: a1\nretry: 1\ndata:\n\n", "id: a2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n", "data: {\"cut")
			panic(http.ErrAbortHandler)
		},
		"GET": func(w http.ResponseWriter, r *http.Request, _ posted) {
			asked = append(asked, r.Header.Get("Last-Event-Id"))
			switch len(asked) {
			case 1:
				stream(w, "id: a3\ndata:\n\n") // nothing yet
			case 2:
				http.Error(w, "busy", http.StatusServiceUnavailable)
			case 3:
				stream(w, "id: a4\n"+message(pending, `{"late":1}`))
			}
		},
	}}
	server := serve(t, s.ServeHTTP)
	c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
	initialized(t, c)
	got, err := c.Call(t.Context(), "tools/call", nil)
	if err != nil || string(got) != `{"late":1}` {
		t.Errorf("%s %v", got, err)
	}
	if strings.Join(asked, " ") != "a2 a3 a3" {
		t.Error(asked)
	}
}

func TestAStreamThatCannotBeResumed(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"nothing new":   func(w http.ResponseWriter, _ *http.Request) { stream(w, "id: a1\nretry: 1\ndata:\n\n") },
		"not offered":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"another type":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
		"busy for good": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	} {
		var gets atomic.Int32
		s := &sessions{version: "2025-11-25", lost: http.StatusNotFound, requests: map[string]func(http.ResponseWriter, *http.Request, posted){
			"tools/call": func(w http.ResponseWriter, _ *http.Request, _ posted) { stream(w, "id: a1\nretry: 1\ndata:\n\n") },
			"GET": func(w http.ResponseWriter, r *http.Request, _ posted) {
				gets.Add(1)
				get(w, r)
			},
		}}
		server := serve(t, s.ServeHTTP)
		c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
		initialized(t, c)
		if _, err := c.Call(t.Context(), "tools/call", nil); !errors.Is(err, ErrLost) || gets.Load() > 2*maxResumptions {
			t.Errorf("%s: %v, asked %d times", name, err, gets.Load())
		}
	}
}

func TestTheServersOwnStream(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	done := make(chan struct{})
	s := &sessions{version: "2025-11-25", lost: http.StatusNotFound, requests: map[string]func(http.ResponseWriter, *http.Request, posted){
		"GET": func(w http.ResponseWriter, r *http.Request, _ posted) {
			mu.Lock()
			asked = append(asked, r.Header.Get("Mcp-Session-Id")+r.Header.Get("Last-Event-Id"))
			n := len(asked)
			mu.Unlock()
			switch n {
			case 1:
				stream(w, "retry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/a\"}\n\n")
			case 2:
				stream(w, "id: b1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/b\"}\n\n")
			default:
				stream(w, ": open\n\n")
				select {
				case <-r.Context().Done():
				case <-done:
				}
			}
		},
	}}
	server := serve(t, s.ServeHTTP)
	defer close(done)
	notes := make(chan string, 10)
	c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{
		OnNotify: func(method string, _ json.RawMessage) { notes <- method },
		OnGap:    func() { notes <- "gap" },
	})
	initialized(t, c)
	c.Listen()
	// After the first break something may have been missed; the second knows
	// where it was.
	for _, want := range []string{"notifications/a", "gap", "notifications/b"} {
		if got := <-notes; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		got := strings.Join(asked, " ")
		mu.Unlock()
		if got == "session-1 session-1 session-1b1" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(got)
		}
	}
	// A new session has a new stream.
	s.forget()
	if _, err := c.Call(t.Context(), "tools/call", nil); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		got := asked[len(asked)-1]
		mu.Unlock()
		if got == "session-2" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(got)
		}
	}
}

func TestCancellation(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		cancelledBy := make(chan string, 2)
		arrived := make(chan struct{})
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			p := readPosted(r)
			switch p.Method {
			case "notifications/cancelled":
				body, _ := io.ReadAll(r.Body)
				cancelledBy <- string(body)
				w.WriteHeader(http.StatusAccepted)
			case "tools/call":
				close(arrived)
				<-r.Context().Done()
				if version == "2026-07-28" {
					cancelledBy <- "closing"
				}
			}
		})
		c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
		c.Speaks(version)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("not needed any more")
		go func() {
			<-arrived
			cancel(why)
		}()
		if _, err := c.Call(ctx, "tools/call", nil); !errors.Is(err, why) {
			t.Error(err)
		}
		want := "closing"
		if version != "2026-07-28" {
			want = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"not needed any more"}}` + "\n"
		}
		if got := <-cancelledBy; got != want {
			t.Errorf("%s: %q", version, got)
		}
	}
}

func TestStopEndsCalls(t *testing.T) {
	arrived := make(chan struct{})
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	})
	c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
	failed := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), "tools/call", nil)
		failed <- err
	}()
	<-arrived
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, jsonrpc.ErrClosed) {
		t.Error(err)
	}
}
