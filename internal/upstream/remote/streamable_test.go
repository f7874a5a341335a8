package remote

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// serve starts a server of a test, on this machine.
func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// stream answers with events, written one after the other.
func stream(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, e)
		_ = http.NewResponseController(w).Flush()
	}
}

// message is an event with an answer.
func message(p posted, result string) string {
	return fmt.Sprintf("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", p.ID, result)
}

func bomb(w io.Writer, before, after string, megabytes int) {
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, before)
	zeros := []byte(strings.Repeat("0", 1<<20))
	for range megabytes {
		if _, err := z.Write(zeros); err != nil {
			return
		}
	}
	_, _ = io.WriteString(z, after)
	_ = z.Close()
}

// TestAnswers: what a server may answer a request with, and what becomes of it.
func TestAnswers(t *testing.T) {
	const most = 1 << 20
	tests := []struct {
		name   string
		answer func(w http.ResponseWriter, p posted)
		want   string // the result
		kind   error
		text   string // in the error
	}{
		{name: "raw bytes", want: `{"z":9007199254740993, "a":1.0}`,
			answer: func(w http.ResponseWriter, p posted) { writeJSON(w, p, `{"z":9007199254740993, "a":1.0}`) }},
		{name: "without a type", want: `{}`, answer: func(w http.ResponseWriter, p posted) {
			w.Header()["Content-Type"] = nil
			fmt.Fprintf(w, "\xef\xbb\xbf {\n\"id\":%s,\"jsonrpc\":\"2.0\",\"result\":{}}\n", p.ID)
		}},
		{name: "a batch", want: `{"mine":1}`, answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			fmt.Fprintf(w, `[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":99,"result":{}},{"jsonrpc":"2.0","id":%s,"result":{"mine":1}}]`, p.ID)
		}},
		{name: "an event", want: `{"e":1}`, answer: func(w http.ResponseWriter, p posted) { stream(w, ": hello\n\n", message(p, `{"e":1}`)) }},
		{name: "events of others, then twice", want: `{"first":1}`, answer: func(w http.ResponseWriter, p posted) {
			stream(w, message(posted{ID: json.RawMessage(`"x"`)}, `{}`), message(posted{ID: json.RawMessage(`4711`)}, `{}`),
				"event: other\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"no\":1}}\n\n", "data: garbage\n\n", message(p, `{"first":1}`), message(p, `{"second":1}`))
		}},
		{name: "an error", text: "bad thing (error -32001)", answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"bad thing"}}`, p.ID)
		}},
		{name: "an error for no request", text: "parse error", answer: func(w http.ResponseWriter, _ posted) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`)
		}},
		{name: "another id", kind: jsonrpc.ErrMalformed, text: `not the answer to this request: "{\"jsonrpc\"`, answer: func(w http.ResponseWriter, _ posted) { writeJSON(w, posted{ID: json.RawMessage(`77`)}, `{}`) }},
		{name: "a text as id", want: `{}`, answer: func(w http.ResponseWriter, p posted) {
			writeJSON(w, posted{ID: json.RawMessage(`"` + string(p.ID) + `"`)}, `{}`)
		}},
		{name: "no id", want: `{}`, answer: func(w http.ResponseWriter, _ posted) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","result":{},"error":null}`)
		}},
		{name: "null as id", want: `{}`, answer: func(w http.ResponseWriter, _ posted) { writeJSON(w, posted{ID: json.RawMessage(`null`)}, `{}`) }},
		{name: "text in front", want: `{}`, answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, "Warning: Undefined {variable} in /x.php\n{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n", p.ID)
		}},
		{name: "text behind, in an event", want: `{}`, answer: func(w http.ResponseWriter, p posted) {
			stream(w, fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}} done\n\n", p.ID))
		}},
		{name: "neither result nor error", kind: jsonrpc.ErrMalformed, answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s}`, p.ID)
		}},
		{name: "NaN", kind: jsonrpc.ErrNotJSON, text: `near "NaN"`, answer: func(w http.ResponseWriter, p posted) { writeJSON(w, p, `{"v":NaN}`) }},
		{name: "NaN in an event", kind: jsonrpc.ErrNotJSON, answer: func(w http.ResponseWriter, p posted) { stream(w, message(p, `{"v":NaN}`)) }},
		{name: "nothing", kind: jsonrpc.ErrNotJSON, answer: func(w http.ResponseWriter, _ posted) { w.WriteHeader(http.StatusAccepted) }},
		{name: "a web page", kind: jsonrpc.ErrMalformed, text: "text/html", answer: func(w http.ResponseWriter, _ posted) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>s3cret</html>")
		}},
		{name: "deep", kind: jsonrpc.ErrTooLarge, answer: func(w http.ResponseWriter, p posted) {
			writeJSON(w, p, strings.Repeat(`{"a":`, 600)+`1`+strings.Repeat(`}`, 600))
		}},
		{name: "large", kind: jsonrpc.ErrTooLarge, text: "1048576 bytes are allowed", answer: func(w http.ResponseWriter, p posted) {
			writeJSON(w, p, `"`+strings.Repeat("x", most)+`"`)
		}},
		{name: "a large event", kind: jsonrpc.ErrTooLarge, answer: func(w http.ResponseWriter, p posted) { stream(w, message(p, `"`+strings.Repeat("x", 2*most)+`"`)) }},
		{name: "a bomb", kind: jsonrpc.ErrTooLarge, answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "application/json")
			bomb(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"`, p.ID), `"}`, 16)
		}},
		{name: "a bomb of an event", kind: jsonrpc.ErrTooLarge, answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/event-stream")
			bomb(w, fmt.Sprintf(`data: {"jsonrpc":"2.0","id":%s,"result":"`, p.ID), "\"}\n\n", 16)
		}},
		{name: "compressed", want: `{"small":1}`, answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "application/json")
			bomb(w, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"small":1}}`, p.ID), "", 0)
		}},
		{name: "a stream without an answer", kind: ErrLost, text: "ended the stream", answer: func(w http.ResponseWriter, _ posted) { stream(w, ": nothing\n\n") }},
		{name: "cut off in an event", kind: ErrLost, answer: func(w http.ResponseWriter, _ posted) {
			stream(w, "data: {\"jsonrpc\":")
			panic(http.ErrAbortHandler)
		}},
		{name: "cut off in a body", kind: ErrLost, answer: func(w http.ResponseWriter, _ posted) {
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":`)
			panic(http.ErrAbortHandler)
		}},
		{name: "closed before the answer", kind: ErrLost, answer: func(http.ResponseWriter, posted) { panic(http.ErrAbortHandler) }},
		{name: "huge headers", kind: ErrLost, answer: func(w http.ResponseWriter, p posted) {
			w.Header().Set("X-Huge", strings.Repeat("x", 2*maxHeaderBytes))
			writeJSON(w, p, `{}`)
		}},
		{name: "a status", text: "HTTP status 503 Service Unavailable (to be tried again after 7): be[31m back soon", answer: func(w http.ResponseWriter, _ posted) {
			w.Header().Set("Retry-After", "7")
			http.Error(w, "be\x1b[31m back\nsoon", http.StatusServiceUnavailable)
		}},
		{name: "unauthorized", text: "HTTP status 401", answer: func(w http.ResponseWriter, _ posted) {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}},
	}
	n := NewNetwork(nil, nil)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			broken := atomic.Bool{}
			broken.Store(true)
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				p := readPosted(r)
				if broken.Load() {
					test.answer(w, p)
					return
				}
				writeJSON(w, p, `{"fine":1}`)
			})
			c := streamable(t, n, Target{URL: server.URL}, Options{MaxMessage: most})
			got, err := c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"x"}`))
			switch {
			case test.want != "":
				if err != nil || string(got) != test.want {
					t.Errorf("%s %v", got, err)
				}
			case err == nil:
				t.Errorf("%.100s", got)
			case test.kind != nil && !errors.Is(err, test.kind), !strings.Contains(err.Error(), test.text), strings.Contains(err.Error(), "s3cret"), len(err.Error()) > 1000:
				t.Errorf("%v\nwant %v %s", err, test.kind, test.text)
			}
			// It harms that call alone.
			broken.Store(false)
			if got, err := c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"x"}`)); err != nil || string(got) != `{"fine":1}` {
				t.Errorf("the next call: %s %v", got, err)
			}
		})
	}
}

// TestServersThatStall: a call ends when its context does.
func TestServersThatStall(t *testing.T) {
	tests := map[string]func(w http.ResponseWriter, r *http.Request, p posted){
		"silent": func(_ http.ResponseWriter, r *http.Request, _ posted) { <-r.Context().Done() },
		"slow": func(w http.ResponseWriter, r *http.Request, _ posted) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, " "); err != nil || http.NewResponseController(w).Flush() != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		},
		"endless events": func(w http.ResponseWriter, r *http.Request, _ posted) {
			for r.Context().Err() == nil {
				stream(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
			}
		},
		"an endless line": func(w http.ResponseWriter, r *http.Request, _ posted) {
			stream(w, ": ")
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<16)); err != nil {
					return
				}
			}
		},
		"resumed for ever": func(w http.ResponseWriter, _ *http.Request, _ posted) {
			stream(w, fmt.Sprintf("id: %d\nretry: 1\ndata:\n\n", time.Now().UnixNano()))
		},
		"a long wait": func(w http.ResponseWriter, _ *http.Request, _ posted) {
			stream(w, "id: 1\nretry: 2000000000\ndata:\n\n")
		},
	}
	n := NewNetwork(nil, nil)
	for name, handle := range tests {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, r *http.Request) { handle(w, r, readPosted(r)) })
			c := streamable(t, n, Target{URL: server.URL}, Options{MaxMessage: 1 << 20})
			why := errors.New("patience is over")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
			defer cancel()
			if got, err := c.Call(ctx, "tools/call", nil); !errors.Is(err, why) {
				t.Error(string(got), err)
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	var reached atomic.Int32
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		answering(`{"stolen":1}`).ServeHTTP(w, r)
	})
	var here *httptest.Server
	here = serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/other":
			http.Redirect(w, r, elsewhere.URL+"/?s3cret", http.StatusTemporaryRedirect)
		case "/scheme":
			http.Redirect(w, r, strings.Replace(here.URL, "http:", "https:", 1), http.StatusPermanentRedirect)
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
		case "/found":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusTemporaryRedirect)
		case "/slash":
			http.Redirect(w, r, "/slash/", http.StatusPermanentRedirect)
		default:
			if r.Header.Get("Authorization") != "Bearer t0ken" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			answering(`{"path":"`+r.URL.Path+`"}`).ServeHTTP(w, r)
		}
	})
	n := NewNetwork(nil, nil)
	target := func(path string) Target {
		return Target{URL: here.URL + path, Headers: map[string]string{"Authorization": "Bearer t0ken"}}
	}
	if got, err := call(t, n, target("/slash")); err != nil || string(got) != `{"path":"/slash/"}` {
		t.Errorf("%s %v", got, err)
	}
	for path, want := range map[string]string{
		"/other": "redirects to another address, " + elsewhere.URL, "/scheme": "redirects to another address, https://", "/metadata": "another address",
		"/found": "loses the request", "/circle": "in circles",
	} {
		_, err := call(t, n, target(path))
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if reached.Load() != 0 {
		t.Error("another address was asked")
	}
}

func TestHeadersAreOurs(t *testing.T) {
	var got http.Header
	var host string
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got, host = r.Header.Clone(), r.Host
		answering(`{}`).ServeHTTP(w, r)
	})
	target := Target{
		URL: strings.Replace(server.URL, "http://", "http://me:s3cret@", 1),
		Headers: map[string]string{
			"x-key": "k", "HOST": "evil", "content-type": "text/plain", "Mcp-Session-Id": "forged", "mcp-protocol-version": "1", "Accept": "x", "User-Agent": "mine",
		},
	}
	c := streamable(t, NewNetwork(nil, nil), target, Options{})
	c.Speaks("2026-07-28")
	if _, err := c.CallWith(t.Context(), "tools/call", json.RawMessage(`{"_meta":{},"name":"Grüße"}`), map[string]string{"Mcp-Param-Region": "eu"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"X-Key": "k", "Content-Type": "application/json", "Mcp-Session-Id": "", "Mcp-Protocol-Version": "2026-07-28", "Accept": bothTypes, "User-Agent": "mine",
		"Mcp-Method": "tools/call", "Mcp-Name": "=?base64?R3LDvMOfZQ==?=", "Mcp-Param-Region": "eu", "Authorization": "Basic bWU6czNjcmV0",
	} {
		if got.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Get(name), want)
		}
	}
	if host != server.Listener.Addr().String() {
		t.Error(host)
	}
}

func TestServerAsks(t *testing.T) {
	answered := make(chan string, 10)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		p := readPosted(r)
		if p.Method == "" {
			body, _ := io.ReadAll(r.Body)
			answered <- strings.TrimSpace(string(body))
			w.WriteHeader(http.StatusAccepted)
			return
		}
		stream(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}\n\n",
			"data: {\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}\n\n",
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"p\":1}}\n\n")
		if got := <-answered; got != `{"jsonrpc":"2.0","id":"q","result":{}}` {
			t.Error(got)
		}
		stream(w, message(p, `{}`))
	})
	var noted atomic.Value
	c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{
		OnNotify: func(method string, params json.RawMessage) { noted.Store(method + string(params)) },
	})
	if _, err := c.Call(t.Context(), "tools/call", nil); err != nil {
		t.Error(err)
	}
	if noted.Load() != `notifications/progress{"p":1}` {
		t.Error(noted.Load())
	}
	if s := c.Stats(); s.Requests != 2 || s.Notifications != 1 || s.Calls != 1 {
		t.Errorf("%+v", s)
	}
}

func TestParallelCallsShareConnections(t *testing.T) {
	var mu sync.Mutex
	from := map[string]bool{}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from[r.RemoteAddr] = true
		mu.Unlock()
		stream(w, message(readPosted(r), `{}`))
	})
	c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, Options{})
	for range 50 {
		if _, err := c.Call(t.Context(), "tools/call", nil); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	// A connection is free a moment after its stream has ended.
	if len(from) > 10 {
		t.Errorf("50 calls took %d connections", len(from))
	}
}

// FuzzAnswer: whatever a server answers with, the call has an outcome, and a
// result is JSON.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, `[{"id":1,"result":[]},{"method":"x","id":2}]`, `{"id":1,"error":{"code":1}}`,
		`{"id":null,"error":7}`, "\xef\xbb\xbf{\"id\":1.0,\"result\":\"\xff\"}", `{"id":1,"result":NaN}`, `{"method":"m","params":[]}`, ``,
	} {
		f.Add([]byte(seed))
	}
	n := NewNetwork(nil, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := n.NewStreamable(Target{URL: "http://127.0.0.1:1/"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.fail(errors.New("nothing is sent"))
		result, err := c.whole(data, one{id: 1, by: t.Context()})
		if err == nil && !jsonscan.Valid(result) {
			t.Errorf("%q: %q", data, result)
		}
	})
}
