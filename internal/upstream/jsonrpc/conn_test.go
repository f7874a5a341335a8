package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is the other end of a connection, scripted by a test.
type peer struct {
	t   *testing.T
	in  *bufio.Reader // what the connection writes
	out *os.File      // what it reads
}

type wireMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
}

func (p *peer) recv() wireMessage {
	p.t.Helper()
	text, err := p.in.ReadBytes('\n')
	if err != nil {
		p.t.Fatalf("peer: %v", err)
	}
	var m wireMessage
	if err := json.Unmarshal(text, &m); err != nil {
		p.t.Fatalf("peer got %q: %v", text, err)
	}
	return m
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil {
		p.t.Errorf("peer: %v", err)
	}
}

// connect returns a connection over two pipes and its other end.
func connect(t *testing.T, opts Options) (*Conn, *peer) {
	t.Helper()
	toPeerR, toPeerW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromPeerR, fromPeerW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(fromPeerR, toPeerW, opts)
	t.Cleanup(func() {
		c.CloseWrite()
		_ = fromPeerW.Close()
		_ = toPeerR.Close()
		c.Wait()
		_ = fromPeerR.Close()
	})
	return c, &peer{t: t, in: bufio.NewReader(toPeerR), out: fromPeerW}
}

type outcome struct {
	result json.RawMessage
	err    error
}

func goCall(ctx context.Context, c *Conn, method string, params string) chan outcome {
	ch := make(chan outcome, 1)
	go func() {
		var raw json.RawMessage
		if params != "" {
			raw = json.RawMessage(params)
		}
		result, err := c.Call(ctx, method, raw)
		ch <- outcome{result, err}
	}()
	return ch
}

func TestResultsKeepTheirBytes(t *testing.T) {
	c, p := connect(t, Options{})
	for _, result := range []string{
		`{"z":1,"a":2,"n":9007199254740993,"f":1.0,"e":1e2,"s":"\u00e9\/"}`, `null`, `[ 1,  2 ]`, `"x"`, `-0.0`,
		`{"text":"` + strings.Repeat("long ", 20_000) + `"}`,
	} {
		ch := goCall(t.Context(), c, "m", `{"b":1,"a":9007199254740993}`)
		m := p.recv()
		if string(m.Params) != `{"b":1,"a":9007199254740993}` {
			t.Errorf("params arrived as %s", m.Params)
		}
		p.send(` {"result": %s ,"jsonrpc":"2.0","id":%s} `, result, m.ID)
		if got := <-ch; got.err != nil || string(got.result) != result {
			t.Errorf("result %.100s, %v; want %.100s", got.result, got.err, result)
		}
	}
}

func TestParamsArriveOnOneLineOrNotAtAll(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "{\n\t\"a\" : \"x\xff\",\r\n\"b\":9007199254740993 }")
	m := p.recv()
	if want := "{\"a\":\"x\uFFFD\",\"b\":9007199254740993}"; string(m.Params) != want {
		t.Errorf("params %q, want %q", m.Params, want)
	}
	p.send(`{"id":%s,"result":1}`, m.ID)
	<-ch
	for _, bad := range []string{`{`, `{}{}`, "{}\n{\"method\":\"injected\"}", `}`} {
		if _, err := c.Call(t.Context(), "m", json.RawMessage(bad)); !errors.Is(err, ErrInvalidParams) {
			t.Errorf("%q: %v", bad, err)
		}
		if err := c.Notify(t.Context(), "m", json.RawMessage(bad)); !errors.Is(err, ErrInvalidParams) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAnswersInAnyOrder(t *testing.T) {
	c, p := connect(t, Options{})
	const n = 50
	var calls [n]chan outcome
	for i := range n {
		calls[i] = goCall(t.Context(), c, "m", fmt.Sprintf(`{"i":%d}`, i))
	}
	var requests [n]wireMessage
	for i := range n {
		requests[i] = p.recv()
	}
	for i := n - 1; i >= 0; i-- {
		p.send(`{"id":%s,"result":%s}`, requests[i].ID, requests[i].Params)
	}
	for i := range n {
		if got := <-calls[i]; got.err != nil || string(got.result) != fmt.Sprintf(`{"i":%d}`, i) {
			t.Errorf("call %d: %s, %v", i, got.result, got.err)
		}
	}
}

func TestAnswersNobodyAskedFor(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "")
	m := p.recv()
	p.send(`{"id":999,"result":"never asked"}`)
	p.send(`{"id":"x%s","result":"a string"}`, m.ID)
	p.send(`{"id":null,"error":{"code":-32700,"message":"parse error"}}`)
	p.send(`{"id":-1,"result":1}`)
	p.send(`{"id":1.5,"result":1}`)
	p.send(`{"id":%s.0,"result":"right"}`, m.ID)
	p.send(`{"id":%s,"result":"again"}`, m.ID)
	if got := <-ch; string(got.result) != `"right"` {
		t.Errorf("got %s, %v", got.result, got.err)
	}
	// A second call proves that the connection goes on.
	ch = goCall(t.Context(), c, "m", "")
	p.send(`{"id":%s,"result":2}`, p.recv().ID)
	if got := <-ch; string(got.result) != "2" {
		t.Errorf("got %s, %v", got.result, got.err)
	}
	if s := c.Stats(); s.Unknown != 6 || s.Calls != 2 {
		t.Errorf("%+v", s)
	}
}

func TestErrorAnswers(t *testing.T) {
	c, p := connect(t, Options{MaxDepth: 20})
	tests := []struct {
		answer string
		want   Error
		is     error
	}{
		{`"error":{"code":-32601,"message":"no such method","data":{"x":1}}`, Error{Code: -32601, Message: "no such method"}, nil},
		{`"error":{"code":5.0,"message":{"odd":1}}`, Error{Code: 5, Message: `{"odd":1}`}, nil},
		{`"error":"just text"`, Error{Message: "just text"}, nil},
		{`"error":["odd"]`, Error{Message: `["odd"]`}, nil},
		{`"error":{"code":"-32601","message":"a code in quotes"}`, Error{Code: -32601, Message: "a code in quotes"}, nil},
		{`"result":1,"error":{}`, Error{}, nil},
		{`"error":{"message":"` + strings.Repeat("m", 100_000) + `"}`, Error{Message: strings.Repeat("m", maxErrorText) + "…"}, nil},
		{`"result":1,"error":{"code":1,"message":"both"}`, Error{Code: 1, Message: "both"}, nil},
		{`"error":null`, Error{}, ErrMalformed},
		{`"result":` + strings.Repeat("[", 30) + strings.Repeat("]", 30), Error{}, ErrTooLarge},
	}
	for _, test := range tests {
		ch := goCall(t.Context(), c, "m", "")
		p.send(`{"id":%s,%s}`, p.recv().ID, test.answer)
		got := <-ch
		if test.is != nil {
			if !errors.Is(got.err, test.is) {
				t.Errorf("%.80s: %v", test.answer, got.err)
			}
			continue
		}
		var e *Error
		if !errors.As(got.err, &e) || e.Code != test.want.Code || e.Message != test.want.Message {
			t.Errorf("%.80s: %.200v", test.answer, got.err)
		}
	}
	// An empty error next to a result is a result: some libraries send it.
	for _, empty := range []string{`null`, `false`, `""`} {
		ch := goCall(t.Context(), c, "m", "")
		p.send(`{"id":%s,"result":3,"error":%s}`, p.recv().ID, empty)
		if got := <-ch; string(got.result) != "3" {
			t.Errorf("%s: %s, %v", empty, got.result, got.err)
		}
	}
}

func TestJunkIsKeptAndPassedOver(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "")
	m := p.recv()
	p.send("Server starting…\n\n  \r")
	p.send(`{"half":`)
	p.send(`42`)
	p.send(`{}`)
	p.send(`{"id":1}`)
	p.send(`{"method":7}`)
	p.send(`[`)
	p.send("\xef\xbb\xbf"+`{"id":%s,"result":"`+"a\xffb"+`"}`, m.ID)
	if got := <-ch; string(got.result) != "\"a\uFFFDb\"" {
		t.Errorf("got %q, %v", got.result, got.err)
	}
	if s := c.Stats(); s.Junk != 7 {
		t.Errorf("%+v", s)
	}
	if junk := string(c.Junk()); !strings.HasPrefix(junk, "Server starting…\n{\"half\":\n42\n") {
		t.Errorf("junk %q", junk)
	}
}

func TestJunkIsBounded(t *testing.T) {
	c, p := connect(t, Options{})
	ch := goCall(t.Context(), c, "m", "")
	m := p.recv()
	for i := range 3000 {
		p.send("noise %d %s", i, strings.Repeat("-", 100))
	}
	p.send(`{"id":%s,"result":1}`, m.ID)
	if got := <-ch; got.err != nil {
		t.Fatal(got.err)
	}
	junk := c.Junk()
	if len(junk) != DefaultKeepJunk || !bytes.Contains(junk, []byte("noise 2999 ")) {
		t.Errorf("%d bytes kept", len(junk))
	}
}

func TestBatch(t *testing.T) {
	notes := make(chan string, 1)
	c, p := connect(t, Options{OnNotify: func(method string, _ json.RawMessage) { notes <- method }})
	a, b := goCall(t.Context(), c, "a", ""), goCall(t.Context(), c, "b", "")
	x, y := p.recv(), p.recv()
	p.send(`[{"id":%s,"result":"%s"},{"method":"note"},{"id":%s,"result":"%s"}]`, y.ID, y.Method, x.ID, x.Method)
	if got := <-a; string(got.result) != `"a"` {
		t.Errorf("%s, %v", got.result, got.err)
	}
	if got := <-b; string(got.result) != `"b"` {
		t.Errorf("%s, %v", got.result, got.err)
	}
	if got := <-notes; got != "note" {
		t.Error(got)
	}
}

func TestRequestsOfThePeer(t *testing.T) {
	c, p := connect(t, Options{OnRequest: func(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *Error) {
		return nil, &Error{Code: CodeMethodNotFound, Message: "no " + method}
	}})
	for _, id := range []string{`1`, `"a b"`, `null`, `9007199254740993`} {
		p.send(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
		if m := p.recv(); string(m.Result) != `{}` || string(m.ID) != id && id != "null" {
			t.Errorf("id %s: %+v", id, m)
		}
	}
	p.send(`{"id":2,"method":"roots/list","params":{}}`)
	if m := p.recv(); m.Error == nil || m.Error.Code != CodeMethodNotFound {
		t.Errorf("%+v", m)
	}
	// An id that no answer could carry gets none.
	p.send(`{"id":{"a":1},"method":"ping"}`)
	p.send(`{"id":3,"method":"ping"}`)
	if m := p.recv(); string(m.ID) != "3" {
		t.Errorf("%+v", m)
	}
	if s := c.Stats(); s.Requests != 7 {
		t.Errorf("%+v", s)
	}
}

func TestCancellation(t *testing.T) {
	c, p := connect(t, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	ch := goCall(ctx, c, "slow", "")
	m := p.recv()
	why := errors.New(`the agent "gave up"`)
	cancel(why)
	if got := <-ch; !errors.Is(got.err, why) {
		t.Errorf("%v", got.err)
	}
	note := p.recv()
	if want := fmt.Sprintf(`{"requestId":%s,"reason":"the agent \"gave up\""}`, m.ID); note.Method != "notifications/cancelled" || string(note.Params) != want {
		t.Errorf("%s %s", note.Method, note.Params)
	}
	// The late answer is dropped.
	p.send(`{"id":%s,"result":1}`, m.ID)

	// initialize must not be cancelled.
	ctx, cancel = context.WithCancelCause(t.Context())
	ch = goCall(ctx, c, "initialize", "")
	p.recv()
	cancel(why)
	<-ch
	if err := c.Notify(t.Context(), "next", nil); err != nil {
		t.Fatal(err)
	}
	if m := p.recv(); m.Method != "next" {
		t.Errorf("%+v", m)
	}
	if _, err := c.Call(ctx, "m", nil); !errors.Is(err, why) {
		t.Errorf("a call under a context that has ended: %v", err)
	}
}

// A peer that never reads blocks neither a caller whose context ends nor the end.
func TestPeerThatDoesNotRead(t *testing.T) {
	c, _ := connect(t, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	big, err := json.Marshal(strings.Repeat("x", 100_000))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 3 * queued {
		wg.Go(func() {
			if _, err := c.Call(ctx, "m", big); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
}

func TestEndOfTheStream(t *testing.T) {
	c, p := connect(t, Options{})
	answered, open := goCall(t.Context(), c, "a", ""), goCall(t.Context(), c, "b", "")
	x, y := p.recv(), p.recv()
	if x.Method != "a" {
		x = y
	}
	// An answer without a newline right before the end still counts.
	fmt.Fprintf(p.out, `{"id":%s,"result":1}`, x.ID)
	_ = p.out.Close()
	if got := <-answered; got.err != nil {
		t.Error(got.err)
	}
	if got := <-open; !errors.Is(got.err, ErrClosed) || !errors.Is(got.err, io.EOF) {
		t.Errorf("%v", got.err)
	}
	<-c.Done()
	if _, err := c.Call(t.Context(), "m", nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := c.Notify(t.Context(), "m", nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestOverlongAnswers(t *testing.T) {
	const limit = 100_000
	filler := strings.Repeat("x", 3*limit)
	tests := map[string]string{
		"id first":    `{"jsonrpc":"2.0","id":%[1]s,"result":"%[2]s"}`,
		"id last":     `{"result":"%[2]s","jsonrpc":"2.0","id":%[1]s}`,
		"id before":   `{"result":"%[2]s","id":%[1]s,"jsonrpc":"2.0"}`,
		"only id":     `{"id":%[1]s,"result":"%[2]s"}`,
		"with spaces": `{ "id" : %[1]s , "result" : "%[2]s" }`,
	}
	for name, format := range tests {
		t.Run(name, func(t *testing.T) {
			c, p := connect(t, Options{MaxLine: limit})
			ch, other := goCall(t.Context(), c, "big", ""), goCall(t.Context(), c, "small", "")
			x, y := p.recv(), p.recv()
			if x.Method != "big" {
				x, y = y, x
			}
			p.send(format, x.ID, filler)
			p.send(`{"id":%s,"result":"fine"}`, y.ID)
			if got := <-ch; !errors.Is(got.err, ErrTooLarge) {
				t.Errorf("%v", got.err)
			}
			if got := <-other; string(got.result) != `"fine"` {
				t.Errorf("%s, %v", got.result, got.err)
			}
		})
	}
	t.Run("a notification", func(t *testing.T) {
		c, p := connect(t, Options{MaxLine: limit})
		ch := goCall(t.Context(), c, "m", "")
		m := p.recv()
		p.send(`{"method":"notifications/message","params":{"data":"%s"}}`, filler)
		p.send(`{"id":%s,"result":1}`, m.ID)
		if got := <-ch; got.err != nil {
			t.Error(got.err)
		}
		if s := c.Stats(); s.Overlong != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestManyCallersAtOnce(t *testing.T) {
	c, p := connect(t, Options{})
	go func() {
		for {
			text, err := p.in.ReadBytes('\n')
			if err != nil {
				return
			}
			m, err := parseMessage(bytes.TrimSpace(text))
			if err != nil {
				return
			}
			fmt.Fprintf(p.out, "{\"id\":%s,\"result\":%s}\n", m.id, m.params)
		}
	}()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for k := range 100 {
				want := fmt.Sprintf(`"%d %d"`, i, k)
				got, err := c.Call(t.Context(), "echo", json.RawMessage(want))
				if err != nil || string(got) != want {
					t.Errorf("%s, %v; want %s", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// FuzzConn feeds a connection that has calls open: whatever arrives, it
// neither panics nor hangs, and what it hands out is valid JSON.
func FuzzConn(f *testing.F) {
	for _, s := range messageSeeds {
		f.Add([]byte(s + "\n"))
	}
	f.Add([]byte("{\"id\":1,\"result\":{\"a\":\"\xff\"}}\n{\"id\":1,\"result\":2}\n{\"id\":2,\"error\":{}}\n"))
	f.Add([]byte("{\"id\":1,\"result\":{\"v\":NaN}}\n{\"result\":[-Infinity],\"id\":2}\n"))
	f.Add([]byte(`x {"jsonrpc":"2.0","id":1,"result":1}{"jsonrpc":"2.0","id":"2","result":2} ` + "\x1b[0m\n"))
	f.Add([]byte("{\n\"id\": 1,\n\"result\": [\n1\n]\n}\n{\x00\"\x00i\x00d\x00\n\x00"))
	f.Add([]byte(`[{"id":1,"result":1},{"method":"ping","id":"x"},3]`))
	f.Add([]byte(`{"id":2,"result":"` + strings.Repeat("y", 3000) + "\"}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, w := io.Pipe()
		c := NewConn(r, discard{}, Options{MaxLine: 2000, MaxDepth: 10, OnRequest: func(context.Context, string, json.RawMessage) (json.RawMessage, *Error) {
			return json.RawMessage("{}"), nil
		}})
		one, two := goCall(t.Context(), c, "a", ""), goCall(t.Context(), c, "b", "")
		for c.Stats().Calls < 2 {
			time.Sleep(10 * time.Microsecond)
		}
		_, _ = w.Write(in)
		_ = w.Close()
		for _, ch := range []chan outcome{one, two} {
			if got := <-ch; got.err == nil && !json.Valid(got.result) {
				t.Fatalf("handed out %q", got.result)
			}
		}
		c.Wait()
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }
