package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/store"
)

// askingExecutor runs code that makes one call, which a person is asked about.
type askingExecutor struct {
	stubExecutor
	book *approval.Book
}

func (e *askingExecutor) Submit(req broker.Request) func(context.Context) *broker.Result {
	e.stubExecutor.Submit(req)
	return func(ctx context.Context) *broker.Result {
		p := req.Principal
		p.Request, p.Connection = req.RequestID, "this one"
		a, err := e.book.Ask(ctx, p, authz.CallTool{Server: &authz.Server{Name: "files"}, Tool: req.Code}, authz.Decision{})
		text := fmt.Sprintf("allowed: %v, by %s: %s", a.Allowed, a.By, a.Words)
		if err != nil {
			text = err.Error()
		}
		return &broker.Result{Status: broker.Success, Stdout: []string{text}}
	}
}

func asking(t *testing.T, config Config) (*client, *askingExecutor) {
	e := &askingExecutor{book: approval.New(approval.Config{Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})}
	config.Executor, config.Approvals, config.Connection = e, e.book, "this one"
	return serve(t, config), e
}

var withForms = meta("test", `{"elicitation":{"form":{}}}`)

// begin calls run_python and returns the state of the question that is the answer.
func (c *client) begin(id, code string) (state string) {
	c.t.Helper()
	r := c.run(id, code, withForms)
	state, _ = r["requestState"].(string)
	requests, _ := json.Marshal(r["inputRequests"])
	if r["resultType"] != "input_required" || state == "" || !strings.Contains(string(requests), "files."+code+", 1 call") {
		c.t.Fatalf("got %v, want a question", r)
	}
	return state
}

// repeat repeats a call with an answer.
func (c *client) repeat(id, code, state, answer string) (result, failure map[string]any) {
	c.t.Helper()
	return c.request(id, "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":%q},"requestState":%q,"inputResponses":{"approval":%s},%s`, code, state, answer, withForms))
}

// TestResultsThatAsk: a call is answered with a question, goes on, and is taken up
// by the call that repeats it with its state, once.
func TestResultsThatAsk(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		c, e := asking(t, Config{SDKOnly: sdkOnly})
		const yes = `{"action":"accept","content":{"answer":"waiting"}}`
		first := c.begin("1", "one")
		second := c.begin("2", "two") // not on the SDK's way any more, where that is allowed
		for _, forged := range []string{"x", first + "x", strings.ToLower(second)} {
			if r, failure := c.repeat("3", "one", forged, yes); failure == nil || fmt.Sprint(failure["code"]) != "-32602" {
				t.Errorf("a forged state: got %v", r)
			}
		}
		r, failure := c.repeat("4", "one", first, `{"action":"accept","content":{"answer":"no","words":"not so"}}`)
		if failure != nil || !strings.Contains(fmt.Sprint(r["content"]), "allowed: false, by client test: not so") {
			t.Errorf("got %v, %v, want the person's answer", r, failure)
		}
		if r, failure := c.repeat("5", "one", first, yes); failure == nil {
			t.Errorf("a state counts twice: got %v", r)
		}
		// A wrong repeat fails, allows nothing and leaves the state to a right one.
		for _, wrong := range []struct{ code, answer string }{
			{"another", yes}, {"two", `{"roots":[]}`}, {"two", `{"role":"user","content":{"type":"text","text":"yes"},"model":"m"}`}, {"two", `"yes"`}, {"two", `null`},
		} {
			if r, failure := c.repeat("6", wrong.code, second, wrong.answer); failure == nil {
				t.Errorf("a state with code %q and the answer %s: got %v", wrong.code, wrong.answer, r)
			}
		}
		r, failure = c.request("6", "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":"two"},"requestState":%q,%s`, second, withForms))
		if failure != nil || r["requestState"] != second {
			t.Errorf("no answer: got %v, %v, want the same question", r, failure)
		}
		if r, failure := c.repeat("6", "two", second, yes); failure != nil || !strings.Contains(fmt.Sprint(r["content"]), "allowed: true, by client test") {
			t.Errorf("the right repeat after wrong ones: got %v, %v", r, failure)
		}
		third := c.begin("7", "three")
		q := e.book.List()
		for _, one := range q {
			if one.Item == "three" {
				if _, err := e.book.Answer(approval.Answer{ID: one.ID, Revision: 1, Choice: approval.Waiting, By: "elsewhere"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r, _ := c.repeat("8", "three", third, `{"action":"accept","content":{"answer":"no"}}`); !strings.Contains(fmt.Sprint(r["content"]), "allowed: true, by elsewhere") {
			t.Errorf("got %v, want that the first answer counts", r)
		}
		if got := strings.Join(e.codes(), " "); got != "one two three" {
			t.Errorf("got %s run, want each once", got)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestRepeatsAtOnce: of two right repeats one goes on with the call, and no
// connection knows the states of another.
func TestRepeatsAtOnce(t *testing.T) {
	c, e := asking(t, Config{})
	state := c.begin("1", "one")
	other, _ := asking(t, Config{})
	other.begin("1", "one")
	const yes = `{"action":"accept","content":{"answer":"waiting"}}`
	if r, failure := other.repeat("2", "one", state, yes); failure == nil {
		t.Errorf("another connection's state: got %v", r)
	}
	for i := range 8 {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%d","method":"tools/call","params":{"name":"run_python","arguments":{"code":"one"},"requestState":%q,"inputResponses":{"approval":%s},%s}}`, i, state, yes, withForms))
	}
	won := 0
	for range 8 {
		if m := c.receive(); m["result"] != nil {
			won++
		}
	}
	if got := strings.Join(e.codes(), " "); won != 1 || got != "one" {
		t.Errorf("%d repeats went on, and %s was run, want one and once", won, got)
	}
	if err := errors.Join(c.end(), other.end()); err != nil {
		t.Error(err)
	}
}

// unfit are answers that do not count, and why.
var unfit = []struct{ answer, why string }{
	{`{"action":"accept","content":{"answer":"maybe"}}`, "choose one of the answers: waiting, call"},
	{`{"action":"accept"}`, "choose one of the answers"},
	{`{"action":"accept","content":{"answer":"next"}}`, "say how many calls"},
	{`{"action":"accept","content":{"answer":"next","count":2,"vary":"path, nothing"}}`, `the calls have no argument`},
	{`{"action":"perhaps"}`, "must be accept, decline or cancel"},
}

// TestResultsThatAskAgain: an answer that does not count is asked for again, with the
// reason, a few times; then the question is open for others.
func TestResultsThatAskAgain(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		c, e := asking(t, Config{SDKOnly: sdkOnly})
		for i, tt := range unfit {
			code := fmt.Sprint("code", i)
			state := c.begin("1", code)
			for n := range maxAgain {
				r, failure := c.repeat("2", code, state, tt.answer)
				requests := fmt.Sprint(r["inputRequests"])
				if failure != nil || r["requestState"] == state || !strings.Contains(requests, tt.why) || !strings.Contains(requests, "files."+code+", 1 call") {
					t.Fatalf("%s: got %v, %v, want the question again because of %q", tt.answer, r, failure, tt.why)
				}
				if r, failure := c.repeat("3", code, state, tt.answer); failure == nil {
					t.Errorf("the state before counts: got %v", r)
				}
				state = r["requestState"].(string)
				if n == i%maxAgain { // some are answered after one more, or two
					break
				}
			}
			if i%maxAgain == maxAgain-1 { // this was the last time
				answered := make(chan error)
				go func() {
					c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"run_python","arguments":{"code":%q},"requestState":%q,"inputResponses":{"approval":%s},%s}}`, code, state, tt.answer, withForms))
					q, err := e.book.Next(t.Context(), func(*approval.Question) bool { return true })
					if err == nil {
						_, err = e.book.Answer(approval.Answer{ID: q.ID, Revision: 1, Choice: approval.No, By: "elsewhere"})
					}
					answered <- err
				}()
				if got := fmt.Sprint(c.receive()); !strings.Contains(got, "allowed: false, by elsewhere") {
					t.Errorf("%s: got %s, want no further question", tt.answer, got)
				}
				if err := <-answered; err != nil {
					t.Error(err)
				}
				continue
			}
			r, failure := c.repeat("4", code, state, `{"action":"accept","content":{"answer":"call"}}`)
			if failure != nil || !strings.Contains(fmt.Sprint(r["content"]), "allowed: true, by client test") {
				t.Errorf("%s: got %v, %v, want the answer to count", tt.answer, r, failure)
			}
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestRequestsThatAskAgain is TestResultsThatAskAgain for requests.
func TestRequestsThatAskAgain(t *testing.T) {
	c, e := asking(t, Config{})
	c.send(strings.Replace(fmt.Sprintf(initialize, legacyLatest), `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1))
	c.receive()
	c.send(initialized)
	question := func(want string) (id string) {
		t.Helper()
		m := c.unlessWithdrawn()
		params, _ := json.Marshal(m["params"])
		if m["method"] != "elicitation/create" || !strings.Contains(string(params), want) {
			t.Fatalf("got %v, want a question with %q", m, want)
		}
		raw, _ := json.Marshal(m["id"])
		return string(raw)
	}
	answer := func(id, answer string) {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, answer))
	}
	for i, tt := range unfit {
		code := fmt.Sprint("code", i)
		c.send(call("1", code, ""))
		id := question("files." + code + ", 1 call")
		for range maxAgain {
			answer(id, tt.answer)
			id = question(tt.why)
		}
		if i == 0 { // once too often
			answer(id, tt.answer)
			if _, err := e.book.Answer(approval.Answer{ID: e.book.List()[0].ID, Revision: 1, Choice: approval.No, By: "elsewhere"}); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(c.unlessWithdrawn()); !strings.Contains(got, "allowed: false, by elsewhere") {
				t.Errorf("got %s", got)
			}
			continue
		}
		answer(id, `{"action":"accept","content":{"answer":"waiting"}}`)
		if got := fmt.Sprint(c.unlessWithdrawn()); !strings.Contains(got, "allowed: true, by client t") {
			t.Errorf("%s: got %s", tt.answer, got)
		}
	}
	// A client that refuses to ask is not asked again.
	c.send(call("1", "last", ""))
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, question("files.last")))
	if _, err := e.book.Answer(approval.Answer{ID: e.book.List()[0].ID, Revision: 1, Choice: approval.No, By: "elsewhere"}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.unlessWithdrawn()); !strings.Contains(got, "allowed: false, by elsewhere") {
		t.Errorf("got %s", got)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

// unlessWithdrawn returns the next message that withdraws no question.
func (c *client) unlessWithdrawn() map[string]any {
	c.t.Helper()
	for {
		if m := c.receive(); m["method"] != "notifications/cancelled" {
			return m
		}
	}
}

// TestTasksThatAskAgain is TestResultsThatAskAgain for tasks.
func TestTasksThatAskAgain(t *testing.T) {
	both := meta("test", `{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)
	for _, sdkOnly := range []bool{false, true} {
		set := tasks.New(tasks.Options{Log: slog.New(slog.DiscardHandler), Dir: store.At(t.TempDir()), Moment: time.Nanosecond})
		t.Cleanup(func() { set.Close(broker.ErrStop) })
		c, e := asking(t, Config{SDKOnly: sdkOnly, Tasks: set})
		// question returns the key of the task's question, once it has this in it.
		question := func(id, want string) string {
			for hangs := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				task, _ := c.request("2", "tasks/get", fmt.Sprintf(`"taskId":%q,%s`, id, both))
				requests, _ := task["inputRequests"].(map[string]any)
				for key, r := range requests {
					if strings.Contains(fmt.Sprint(r), want) {
						return key
					}
				}
				if time.Now().After(hangs) {
					t.Fatalf("got the task %v, want a question with %q", task, want)
				}
			}
		}
		for i, tt := range append(slices.Clone(unfit), struct{ answer, why string }{`"yes"`, "does not fit the form"}) {
			code := fmt.Sprint("code", i)
			id := c.run("1", code, both)["taskId"].(string)
			key := question(id, "files."+code+", 1 call")
			answer := func(answer string) {
				if _, failure := c.request("3", "tasks/update", fmt.Sprintf(`"taskId":%q,"inputResponses":{%q:%s},%s`, id, key, answer, both)); failure != nil {
					t.Fatal(failure)
				}
			}
			for range maxAgain {
				answer(tt.answer)
				key = question(id, tt.why)
			}
			want := "allowed: true, by client test"
			if i == 0 { // once too often
				answer(tt.answer)
				want = "allowed: false, by elsewhere"
				if _, err := e.book.Answer(approval.Answer{ID: e.book.List()[0].ID, Revision: 1, Choice: approval.No, By: "elsewhere"}); err != nil {
					t.Fatal(err)
				}
			} else {
				answer(`{"action":"accept","content":{"answer":"waiting"}}`)
			}
			if got := fmt.Sprint(c.terminal(id)); !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want %q", tt.answer, got, want)
			}
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestRequestsThatAsk: in a session with a handshake the client gets a request, and
// it is withdrawn when someone else answers.
func TestRequestsThatAsk(t *testing.T) {
	c, e := asking(t, Config{})
	c.send(strings.Replace(fmt.Sprintf(initialize, legacyLatest), `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1))
	c.receive()
	c.send(initialized)
	ask := func(id, code string) string {
		c.send(call(id, code, ""))
		m := c.receive()
		params, _ := json.Marshal(m["params"])
		if m["method"] != "elicitation/create" || !strings.Contains(string(params), "files."+code+", 1 call") {
			t.Fatalf("got %v, want a question", m)
		}
		raw, _ := json.Marshal(m["id"])
		return string(raw)
	}
	question := ask("1", "one")
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"waiting"}}}`, question))
	if got := fmt.Sprint(c.receive()); !strings.Contains(got, "allowed: true, by client t") {
		t.Errorf("got %s", got)
	}
	question = ask("2", "two")
	if _, err := e.book.Answer(approval.Answer{ID: e.book.List()[0].ID, Revision: 1, Choice: approval.No, By: "elsewhere"}); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.receive(), c.receive()) // in either order
	if !strings.Contains(got, "notifications/cancelled") || !strings.Contains(got, "requestId:"+question) || !strings.Contains(got, "allowed: false, by elsewhere") {
		t.Errorf("got %s, want that question %s is withdrawn", got, question)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}
