package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/broker"
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
		// With other arguments the call ends, and nothing is allowed.
		if r, failure := c.repeat("6", "another", second, yes); failure == nil {
			t.Errorf("a state for other arguments: got %v", r)
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
