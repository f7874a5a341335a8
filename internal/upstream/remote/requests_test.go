package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

type callerKey struct{}

// taken is a request of a server that goes on until a test ends it.
type taken struct {
	ctx            context.Context
	method, params string
	answer         chan string
}

// asker is a server that asks while it works on a call. What is sent to events goes
// to the call's response, as it is; what is posted is handed out.
type asker struct {
	begun  chan *taken
	calls  chan posted
	events chan string // closed: the response ends
	posts  chan posted
	gets   http.HandlerFunc
}

func newAsker(t *testing.T, with Options) (*asker, *Streamable) {
	t.Helper()
	a := &asker{begun: make(chan *taken, 64), calls: make(chan posted, 1), events: make(chan string, 64), posts: make(chan posted, 64)}
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && a.gets != nil {
			a.gets(w, r)
			return
		}
		p := readPosted(r)
		if p.Method != "tools/call" {
			a.posts <- p
			w.WriteHeader(http.StatusAccepted)
			return
		}
		a.calls <- p
		a.send(w, r)
	})
	with.OnRequest = a.handle
	c := streamable(t, NewNetwork(nil, nil), Target{URL: server.URL}, with)
	return a, c
}

func (a *asker) send(w http.ResponseWriter, r *http.Request) {
	for {
		select {
		case e, ok := <-a.events:
			if !ok {
				return
			}
			stream(w, e)
		case <-r.Context().Done():
			return
		}
	}
}

func (a *asker) handle(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
	q := &taken{ctx, method, string(params), make(chan string)}
	a.begun <- q
	select {
	case result := <-q.answer:
		return json.RawMessage(result), nil
	case <-ctx.Done():
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: context.Cause(ctx).Error()}
	}
}

// asks returns an event with a request.
func asks(id, method string) string {
	return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"method\":%q,\"params\":{\"of\":%s}}\n\n", id, method, id)
}

// tell returns an event with a notification.
func tell(method, params string) string {
	return fmt.Sprintf("data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":%s}\n\n", method, params)
}

func begin(ctx context.Context, c *Streamable) chan outcome {
	out := make(chan outcome, 1)
	go func() {
		result, err := c.Call(ctx, "tools/call", nil)
		out <- outcome{result, err}
	}()
	return out
}

func (p posted) is(id, result string) bool { return string(p.ID) == id && string(p.Result) == result }

func TestServersMayAskForLong(t *testing.T) {
	notes := make(chan string, 4)
	a, c := newAsker(t, Options{OnNotify: func(method string, _ json.RawMessage) { notes <- method }})
	caller := context.WithValue(t.Context(), callerKey{}, "mine")
	out := begin(caller, c)
	p := <-a.calls
	a.events <- asks(`"q"`, "elicitation/create")
	q := <-a.begun
	if got := q.ctx.Value(callerKey{}); got != "mine" || q.method != "elicitation/create" || q.params != `{"of":"q"}` {
		t.Errorf("got %s with %s for the call of %v", q.method, q.params, got)
	}
	// The stream is read meanwhile.
	a.events <- tell("notifications/progress", "{}") + asks(`"p"`, "ping")
	if got := <-notes; got != "notifications/progress" {
		t.Error(got)
	}
	if got := <-a.posts; !got.is(`"p"`, "{}") {
		t.Errorf("a ping: got %+v", got)
	}
	q.answer <- `{"action":"accept"}`
	if got := <-a.posts; !got.is(`"q"`, `{"action":"accept"}`) {
		t.Errorf("got %+v", got)
	}
	// A request can outlive the call on whose stream it came, as long as the caller's
	// context.
	a.events <- asks(`1`, "roots/list")
	q = <-a.begun
	a.events <- message(p, `{"done":1}`)
	if got := <-out; got.err != nil || string(got.result) != `{"done":1}` {
		t.Errorf("the call: got %s, %v", got.result, got.err)
	}
	q.answer <- `{"roots":[]}`
	if got := <-a.posts; !got.is("1", `{"roots":[]}`) {
		t.Errorf("got %+v", got)
	}
}

func TestTheCallersContextEndsRequests(t *testing.T) {
	a, c := newAsker(t, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	out := begin(ctx, c)
	<-a.calls
	a.events <- asks(`1`, "elicitation/create")
	q := <-a.begun
	why := errors.New("the code has ended")
	cancel(why)
	<-q.ctx.Done()
	if got := context.Cause(q.ctx); got != why {
		t.Errorf("the cause is %v, want %v", got, why)
	}
	if got := <-out; got.err != why {
		t.Errorf("the call: got %v, want %v", got.err, why)
	}
	// The server hears of both ends, in any order.
	answered := false
	for range 2 {
		got := <-a.posts
		answered = answered || strings.Contains(string(got.Error), why.Error())
		if got.Method != jsonrpc.CancelMethod && string(got.ID) != "1" {
			t.Errorf("got %+v", got)
		}
	}
	if !answered {
		t.Error("the request was not answered")
	}
}

func TestTheServerCancels(t *testing.T) {
	a, c := newAsker(t, Options{OnNotify: func(method string, _ json.RawMessage) { t.Errorf("got the notification %q", method) }})
	out := begin(t.Context(), c)
	p := <-a.calls
	a.events <- asks(`7`, "one")
	a.events <- asks(`"7"`, "two")
	one, two := <-a.begun, <-a.begun
	if one.method != "one" {
		one, two = two, one
	}
	a.events <- asks(`7`, "again")
	if got := <-a.posts; string(got.ID) != "7" || !strings.Contains(string(got.Error), "same id") {
		t.Errorf("the same id: got %+v", got)
	}
	a.events <- tell(jsonrpc.CancelMethod, `{"requestId":"7"}`)
	<-two.ctx.Done()
	if one.ctx.Err() != nil {
		t.Errorf("the other one has ended: %v", context.Cause(one.ctx))
	}
	one.answer <- `{"first":true}`
	if got := <-a.posts; !got.is("7", `{"first":true}`) { // and nothing before it
		t.Errorf("got %+v", got)
	}
	a.events <- message(p, `{}`)
	if got := <-out; got.err != nil {
		t.Error(got.err)
	}
	if err := c.Stop(t.Context()); err != nil || len(a.posts) > 0 {
		t.Errorf("%v, %d messages too many", err, len(a.posts))
	}
}

func TestServersThatAskTooMuch(t *testing.T) {
	a, c := newAsker(t, Options{})
	out := begin(t.Context(), c)
	p := <-a.calls
	const most = 16
	var running []*taken
	for id := range most {
		a.events <- asks(itoa(id), "m")
		running = append(running, <-a.begun)
	}
	a.events <- asks(`99`, "m")
	if got := <-a.posts; string(got.ID) != "99" || !strings.Contains(string(got.Error), "-32000") {
		t.Errorf("got %+v", got)
	}
	a.events <- asks(`100`, "ping")
	if got := <-a.posts; !got.is("100", "{}") {
		t.Errorf("got %+v", got)
	}
	// All are answered, though not at once.
	for _, q := range running {
		q.answer <- q.params
	}
	got := map[string]bool{}
	for range most {
		p := <-a.posts
		got[string(p.ID)+string(p.Result)] = true
	}
	for id := range most {
		if want := fmt.Sprintf(`%d{"of":%d}`, id, id); !got[want] {
			t.Errorf("no answer %s", want)
		}
	}
	a.events <- message(p, `{}`)
	if got := <-out; got.err != nil || c.Stats().Dropped > 0 {
		t.Errorf("%v, %+v", got.err, c.Stats())
	}
}

func TestStopEndsRequests(t *testing.T) {
	a, c := newAsker(t, Options{})
	out := begin(t.Context(), c)
	<-a.calls
	a.events <- asks(`1`, "m")
	q := <-a.begun
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if got := context.Cause(q.ctx); !errors.Is(got, jsonrpc.ErrClosed) {
		t.Errorf("the cause is %v, want %v", got, jsonrpc.ErrClosed)
	}
	if got := <-out; !errors.Is(got.err, jsonrpc.ErrClosed) || len(a.posts) > 0 {
		t.Errorf("%v, %d messages too many", got.err, len(a.posts))
	}
}

// A server may end the stream again and again while it waits for a person.
func TestStreamsAreResumedWhileTheServerWaits(t *testing.T) {
	const breaks = 3 * maxResumptions
	resumed := 0
	a, c := newAsker(t, Options{})
	var answered posted
	asked := make(chan posted, 1)
	a.gets = func(w http.ResponseWriter, r *http.Request) {
		resumed++
		switch {
		case resumed < breaks:
			stream(w, "retry: 1\n\n") // nothing new
		case resumed == breaks:
			close(asked)
			answered = <-a.posts
			stream(w, "id: 2\n"+tell("notifications/x", "{}"))
		default:
			stream(w, message(<-a.calls, `{"resumed":1}`))
		}
	}
	out := begin(t.Context(), c)
	p := <-a.calls
	a.calls <- p // for its answer
	a.events <- "id: 1\nretry: 1\n" + asks(`"q"`, "elicitation/create")
	close(a.events)
	q := <-a.begun
	<-asked
	q.answer <- `{"action":"cancel"}`
	if got := <-out; got.err != nil || string(got.result) != `{"resumed":1}` {
		t.Errorf("got %s, %v", got.result, got.err)
	}
	if !answered.is(`"q"`, `{"action":"cancel"}`) {
		t.Errorf("got %+v", answered)
	}
}

func TestTheServersOwnStreamAsks(t *testing.T) {
	a, c := newAsker(t, Options{})
	a.gets = a.send
	c.Listen()
	a.events <- asks(`1`, "roots/list")
	q := <-a.begun
	if got := q.ctx.Value(callerKey{}); got != nil {
		t.Errorf("got the value %v, want none", got)
	}
	q.answer <- `{"roots":[]}`
	if got := <-a.posts; !got.is("1", `{"roots":[]}`) {
		t.Errorf("got %+v", got)
	}
}

// tokens hides a token in what the server sends.
type tokens struct{}

func (tokens) Authorize(*http.Request) (string, error)                 { return "", nil }
func (tokens) Refused(context.Context, string, int, http.Header) error { return nil }
func (tokens) Hide(sent []byte) []byte {
	return []byte(strings.ReplaceAll(string(sent), "t0ken", "***"))
}

func TestRequestsHaveNoCredentials(t *testing.T) {
	a := &asker{begun: make(chan *taken, 1)}
	c, err := NewNetwork(nil, nil).NewStreamable(Target{URL: "http://127.0.0.1:1/", Credentials: tokens{}}, Options{OnRequest: a.handle})
	if err != nil {
		t.Fatal(err)
	}
	c.receive([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"message":"your t0ken"}}`), nobody{})
	if got, want := (<-a.begun).params, `{"message":"your ***"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLegacyServersAsk(t *testing.T) {
	a := &asker{begun: make(chan *taken, 4)}
	// Even before they have said where the answer goes.
	s, target := newEventsServer(t, asks(`"early"`, "ping")+asks(`1`, "m")+endpoint)
	c := dial(t, target, Options{OnRequest: a.handle})
	if p := <-s.posts; !p.is(`"early"`, "{}") {
		t.Errorf("got %+v", p)
	}
	q := <-a.begun
	out := callLegacy(t, context.WithValue(t.Context(), callerKey{}, "mine"), c)
	p := <-s.posts
	s.events <- asks(`2`, "m") + asks(`3`, "m")
	two, three := <-a.begun, <-a.begun
	if two.params != `{"of":2}` {
		two, three = three, two
	}
	if got := two.ctx.Value(callerKey{}); got != nil { // it may be of any call
		t.Errorf("got the value %v, want none", got)
	}
	s.events <- tell(jsonrpc.CancelMethod, `{"requestId":2}`) + message(p, `{}`)
	if got := <-out; got.err != nil {
		t.Error(got.err)
	}
	<-two.ctx.Done()
	q.answer <- `{"late":1}`
	if p := <-s.posts; !p.is("1", `{"late":1}`) {
		t.Errorf("got %+v", p)
	}
	close(s.events)
	<-three.ctx.Done()
	if got := context.Cause(three.ctx); !errors.Is(got, jsonrpc.ErrClosed) {
		t.Errorf("the cause is %v, want %v", got, jsonrpc.ErrClosed)
	}
	_ = c.Stop(t.Context())
	if len(s.posts) > 0 {
		t.Errorf("%d messages too many", len(s.posts))
	}
}

// A server that asks and never says where the answer goes is left alone.
func TestLegacyServersThatOnlyAsk(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		stream(w, asks(`1`, "ping")+asks(`2`, "m"))
		_, _ = io.WriteString(w, "event: end\n\n")
	})
	if _, err := NewNetwork(nil, nil).DialLegacy(t.Context(), Target{URL: server.URL}, Options{}); !errors.Is(err, jsonrpc.ErrClosed) {
		t.Errorf("got %v, want %v", err, jsonrpc.ErrClosed)
	}
}
