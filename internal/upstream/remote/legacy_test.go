package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// eventsServer is a server of 2024-11-05: what is sent to events goes to its
// one stream, and posts are handed out.
type eventsServer struct {
	events chan string // closed: the stream ends
	posts  chan posted
	status int
}

func newEventsServer(t *testing.T, first string) (*eventsServer, Target) {
	t.Helper()
	s := &eventsServer{events: make(chan string, 16), posts: make(chan posted, 16), status: http.StatusAccepted}
	s.events <- first
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.posts <- readPosted(r)
			w.WriteHeader(s.status)
			return
		}
		for {
			select {
			case e, ok := <-s.events:
				if !ok {
					return
				}
				stream(w, e)
			case <-r.Context().Done():
				return
			}
		}
	})
	return s, Target{URL: server.URL + "/sse"}
}

func dial(t *testing.T, target Target, opts Options) *Legacy {
	t.Helper()
	c, err := NewNetwork(nil, nil).DialLegacy(t.Context(), target, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return c
}

const endpoint = "event: endpoint\ndata: /messages?sessionId=s3cret\n\n"

type outcome struct {
	result json.RawMessage
	err    error
}

func callLegacy(t *testing.T, ctx context.Context, c *Legacy) chan outcome {
	t.Helper()
	out := make(chan outcome, 1)
	go func() {
		result, err := c.Call(ctx, "tools/call", json.RawMessage(`{}`))
		out <- outcome{result, err}
	}()
	return out
}

func TestLegacy(t *testing.T) {
	s, target := newEventsServer(t, endpoint)
	notes := make(chan string, 4)
	c := dial(t, target, Options{MaxMessage: 1 << 16,
		OnNotify: func(method string, _ json.RawMessage) { notes <- method },
	})
	// Answers come in any order, with other things between them.
	first := callLegacy(t, t.Context(), c)
	one := <-s.posts
	second := callLegacy(t, t.Context(), c)
	two := <-s.posts
	s.events <- "event: message\ndata: garbage\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/n\"}\n\n"
	s.events <- message(posted{ID: json.RawMessage(`99`)}, `{}`) + message(two, `{"r":2}`) + message(one, `{"r":1}`) + message(one, `{"r":3}`)
	if o := <-first; o.err != nil || string(o.result) != `{"r":1}` {
		t.Error(string(o.result), o.err)
	}
	if o := <-second; o.err != nil || string(o.result) != `{"r":2}` {
		t.Error(string(o.result), o.err)
	}
	if got := <-notes; got != "notifications/n" {
		t.Error(got)
	}
	// A request of the server is answered.
	s.events <- "data: {\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n\n"
	if p := <-s.posts; string(p.ID) != "5" || string(p.Result) != "{}" {
		t.Errorf("%+v", p)
	}
	// What is too long fails the call that it was for.
	long := callLegacy(t, t.Context(), c)
	p := <-s.posts
	s.events <- message(p, `"`+strings.Repeat("x", 1<<17)+`"`)
	if o := <-long; !errors.Is(o.err, jsonrpc.ErrTooLarge) {
		t.Error(o.err)
	}
	// A call that is given up is cancelled.
	ctx, cancel := context.WithCancel(t.Context())
	given := callLegacy(t, ctx, c)
	<-s.posts
	cancel()
	if o := <-given; !errors.Is(o.err, context.Canceled) {
		t.Error(o.err)
	}
	if note := <-s.posts; note.Method != "notifications/cancelled" {
		t.Errorf("%+v", note)
	}
	if st := c.Stats(); st.Unknown != 2 || st.Junk != 1 || st.Overlong != 1 {
		t.Errorf("%+v", st)
	}
	// The end of the stream is the end.
	last := callLegacy(t, t.Context(), c)
	<-s.posts
	close(s.events)
	if o := <-last; !errors.Is(o.err, jsonrpc.ErrClosed) || !strings.Contains(o.err.Error(), "ended the stream") {
		t.Error(o.err)
	}
	if _, err := c.Call(t.Context(), "tools/call", nil); !errors.Is(err, jsonrpc.ErrClosed) {
		t.Error(err)
	}
}

func TestLegacyForgetsTheSession(t *testing.T) {
	s, target := newEventsServer(t, endpoint)
	s.status = http.StatusNotFound
	c := dial(t, target, Options{})
	if _, err := c.Call(t.Context(), "tools/call", nil); !errors.Is(err, jsonrpc.ErrClosed) || !errors.Is(err, errSessionLost) {
		t.Error(err)
	}
}

func TestLegacyPostsThatFail(t *testing.T) {
	s, target := newEventsServer(t, endpoint)
	s.status = http.StatusInternalServerError
	c := dial(t, target, Options{})
	var status *StatusError
	if _, err := c.Call(t.Context(), "tools/call", nil); !errors.As(err, &status) || status.Status != 500 {
		t.Error(err)
	}
	if c.Err() != nil {
		t.Error(c.Err())
	}
}

func TestLegacyStartsThatFail(t *testing.T) {
	for name, test := range map[string]struct {
		handle http.HandlerFunc
		kind   error
		text   string
	}{
		"another address": {func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "event: endpoint\ndata: https://evil.example/s3cret\n\n")
		}, ErrRefused, "https://evil.example:443"},
		"another port": {func(w http.ResponseWriter, _ *http.Request) {
			stream(w, "event: endpoint\ndata: http://127.0.0.1:1/\n\n")
		}, ErrRefused, "127.0.0.1:1"},
		"no URL":          {func(w http.ResponseWriter, _ *http.Request) { stream(w, "event: endpoint\ndata: http://[::s3cret\n\n") }, jsonrpc.ErrMalformed, "not a URL"},
		"it ends":         {func(w http.ResponseWriter, _ *http.Request) { stream(w, "data: x\n\n") }, jsonrpc.ErrClosed, "ended the stream"},
		"another type":    {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, jsonrpc.ErrMalformed, "text/plain"},
		"not there":       {http.NotFound, nil, "HTTP status 404"},
		"it says nothing": {func(w http.ResponseWriter, r *http.Request) { stream(w, ": hm\n\n"); <-r.Context().Done() }, context.DeadlineExceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, test.handle)
			wait := 30 * time.Second
			if test.kind == context.DeadlineExceeded {
				wait = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := NewNetwork(nil, nil).DialLegacy(ctx, Target{URL: server.URL}, Options{})
			if err == nil || test.kind != nil && !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "s3cret") {
				t.Error(err)
			}
		})
	}
}
