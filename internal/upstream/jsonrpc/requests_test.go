package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// held is a handler whose requests go on until a test ends them.
type held struct {
	begun chan *taken
}

type taken struct {
	ctx    context.Context
	method string
	params json.RawMessage
	answer chan json.RawMessage
}

func newHeld() *held { return &held{make(chan *taken, 2*requestsAtOnce)} }

func (h *held) handle(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error) {
	q := &taken{ctx, method, params, make(chan json.RawMessage)}
	h.begun <- q
	select {
	case result := <-q.answer:
		return result, nil
	case <-ctx.Done():
		return nil, &Error{Code: CodeInternal, Message: context.Cause(ctx).Error()}
	}
}

func TestRequestsMayTakeLong(t *testing.T) {
	h := newHeld()
	notes := make(chan string, 1)
	c, p := connect(t, Options{OnRequest: h.handle, OnNotify: func(method string, _ json.RawMessage) { notes <- method }})
	p.send(`{"jsonrpc":"2.0","id":"a","method":"elicitation/create","params":{"message":"Which one?"}}`)
	first := <-h.begun
	p.send(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
	second := <-h.begun

	// Everything else flows meanwhile, and overwrites the bytes that were read.
	p.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"text":"%s"}}`, strings.Repeat("x", 20_000))
	if got := <-notes; got != "notifications/progress" {
		t.Errorf("got the notification %q", got)
	}
	ch := goCall(t.Context(), c, "m", "")
	p.send(`{"id":%s,"result":1}`, p.recv().ID)
	if got := <-ch; string(got.result) != "1" {
		t.Errorf("a call: got %s, %v, want 1", got.result, got.err)
	}
	p.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	if m := p.recv(); string(m.ID) != `"p"` || string(m.Result) != `{}` {
		t.Errorf("a ping: got %+v", m)
	}

	if got := string(first.params); first.method != "elicitation/create" || got != `{"message":"Which one?"}` {
		t.Errorf("got %s with %s", first.method, got)
	}
	if second.method != "roots/list" || second.params != nil {
		t.Errorf("got %s with %s", second.method, second.params)
	}
	second.answer <- json.RawMessage(`{"roots":[]}`)
	if m := p.recv(); string(m.ID) != "2" || string(m.Result) != `{"roots":[]}` {
		t.Errorf("got %+v", m)
	}
	first.answer <- json.RawMessage(`{"action":"decline"}`)
	if m := p.recv(); string(m.ID) != `"a"` || string(m.Result) != `{"action":"decline"}` {
		t.Errorf("got %+v", m)
	}
	// A request may have the id of one that has been answered.
	p.send(`{"jsonrpc":"2.0","id":"a","method":"again"}`)
	again := <-h.begun
	again.answer <- json.RawMessage(`no JSON`)
	if m := p.recv(); m.Error == nil || m.Error.Code != CodeInternal {
		t.Errorf("got %+v, want an error for what cannot be encoded", m)
	}
}

func TestThePeerCancels(t *testing.T) {
	h := newHeld()
	c, p := connect(t, Options{OnRequest: h.handle, OnNotify: func(method string, _ json.RawMessage) {
		t.Errorf("got the notification %q", method)
	}})
	for _, id := range []string{`7`, `"7"`, `"a \"b\""`, `9007199254740993`} {
		p.send(`{"jsonrpc":"2.0","id":%s,"method":"m"}`, id)
		q := <-h.begun
		for _, other := range []string{`8`, `"8"`, `null`, `{}`, `[7]`} {
			p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, other)
		}
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":[%s]}`, id)
		p.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		if m := p.recv(); string(m.ID) != `"p"` || q.ctx.Err() != nil {
			t.Fatalf("id %s: got %+v, %v", id, m, context.Cause(q.ctx))
		}
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"reason":"late","requestId" : %s }}`, id)
		<-q.ctx.Done()
		if got := context.Cause(q.ctx); got != errCancelled {
			t.Errorf("id %s: the cause is %v, want %v", id, got, errCancelled)
		}
		c.asked.work.Wait()
		p.send(`{"jsonrpc":"2.0","id":"q","method":"ping"}`)
		if m := p.recv(); string(m.ID) != `"q"` { // and no answer before it
			t.Errorf("id %s: got %+v, want only the answer to the ping", id, m)
		}
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	h := newHeld()
	c, p := connect(t, Options{OnRequest: h.handle})
	refused := func(what, id, params string, code int64) {
		t.Helper()
		p.send(`{"jsonrpc":"2.0","id":%s,"method":"m","params":%s}`, id, params)
		if m := p.recv(); string(m.ID) != id || m.Error == nil || m.Error.Code != code {
			t.Errorf("%s: got the answer %s with %+v, want %s with code %d", what, m.ID, m.Error, id, code)
		}
	}
	refused("long parameters", "0", `"`+strings.Repeat("x", maxParams)+`"`, CodeInvalidRequest)
	var running []*taken
	for id := range requestsAtOnce {
		p.send(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{"id":%d}}`, id, id)
		running = append(running, <-h.begun)
	}
	refused("the same id", "3", "{}", CodeInvalidRequest)
	refused("too many", "99", "{}", CodeBusy)
	p.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if m := p.recv(); string(m.ID) != "3" || string(m.Result) != `{}` {
		t.Errorf("a ping: got %+v", m)
	}
	// Who has an answer can ask again.
	for id, q := range running {
		q.answer <- q.params
		if m := p.recv(); string(m.Result) != fmt.Sprintf(`{"id":%d}`, id) {
			t.Errorf("request %d: got %+v", id, m)
		}
		p.send(`{"jsonrpc":"2.0","id":%d,"method":"again"}`, id)
		if q := <-h.begun; q.method != "again" {
			t.Errorf("got %s", q.method)
		}
	}
	if len(h.begun) > 0 || c.Stats().Requests != 2*requestsAtOnce+4 {
		t.Errorf("%d requests too many, %+v", len(h.begun), c.Stats())
	}
}

func TestNobodyAnswers(t *testing.T) {
	_, p := connect(t, Options{})
	for method, want := range map[string]int64{"ping": 0, "roots/list": CodeMethodNotFound} {
		p.send(`{"jsonrpc":"2.0","id":1,"method":"%s"}`, method)
		if m := p.recv(); (m.Error == nil) != (want == 0) || want != 0 && m.Error.Code != want {
			t.Errorf("%s: got %+v, want code %d", method, m, want)
		}
	}
}

func TestTheEndEndsRequests(t *testing.T) {
	for name, end := range map[string]func(*Conn, *peer){
		"by us":       func(c *Conn, _ *peer) { c.CloseWrite() },
		"by the peer": func(_ *Conn, p *peer) { _ = p.out.Close() },
	} {
		h := newHeld()
		c, p := connect(t, Options{OnRequest: h.handle})
		p.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		q := <-h.begun
		end(c, p)
		<-q.ctx.Done()
		if got := context.Cause(q.ctx); !errors.Is(got, ErrClosed) {
			t.Errorf("%s: the cause is %v, want %v", name, got, ErrClosed)
		}
		_ = p.out.Close()
		c.Wait()
		if text, err := p.in.ReadBytes('\n'); err == nil {
			t.Errorf("%s: got %q, want no answer", name, text)
		}
	}
}

// A peer that asks and does not read has no more requests in progress than others.
func TestAPeerThatAsksAndDoesNotRead(t *testing.T) {
	h := newHeld()
	sent, over := make(chan []byte), make(chan struct{})
	r := NewRequests(h.handle, func(answer []byte) {
		sent <- answer
		<-over
	})
	take := func(id int) []byte {
		return r.Take(t.Context(), json.RawMessage(fmt.Sprint(id)), "m", nil)
	}
	for id := range answersAtOnce + requestsAtOnce {
		if answer := take(id); answer != nil {
			t.Fatalf("request %d: got %s", id, answer)
		}
		q := <-h.begun
		q.answer <- json.RawMessage("1")
		if id < answersAtOnce {
			<-sent // for ever
		}
	}
	if answer := string(take(99)); !strings.Contains(answer, "-32000") || r.Post([]byte("{}")) {
		t.Errorf("got %q, want a refusal, and nothing sent", answer)
	}
	r.End(ErrClosed)
	close(over)
	r.Wait()
	if len(h.begun) > 0 {
		t.Errorf("%d requests too many began", len(h.begun))
	}
}

func TestRequestsBelongToACall(t *testing.T) {
	type key struct{}
	h := newHeld()
	sent := make(chan string, 1)
	r := NewRequests(h.handle, func(answer []byte) { sent <- string(answer) })
	call, end := context.WithCancelCause(context.WithValue(t.Context(), key{}, "mine"))
	if answer := r.Take(call, json.RawMessage("1"), "m", nil); answer != nil {
		t.Fatalf("got %s", answer)
	}
	q := <-h.begun
	if got := q.ctx.Value(key{}); got != "mine" || !r.Waiting() {
		t.Errorf("got the value %v, waiting %t", got, r.Waiting())
	}
	end(errors.New("the call is over"))
	if got, want := <-sent, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the call is over"}}`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r.Waiting() {
		t.Error("what has been answered is still in progress")
	}
	r.End(ErrClosed)
	r.End(ErrClosed)
	if answer := r.Take(t.Context(), json.RawMessage("1"), "m", nil); answer != nil || len(h.begun) > 0 || r.Post([]byte("{}")) {
		t.Errorf("after the end: got %s, %d began", answer, len(h.begun))
	}
	r.Wait()
}
