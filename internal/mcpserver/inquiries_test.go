package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/store"
)

// demand is what a server asks, and how a client answers it.
type demand struct {
	name, method, params string
	shown                string // in the parameters for the client
	right, wrong, result string
}

var kinds = []demand{
	{
		"form", inquiry.Elicitation, `{"message":"Which?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`,
		`"message":"MCP server \"files\" asks:\n\nWhich?"`,
		`{"action":"accept","content":{"n":7}}`, `{"action":"accept","content":{"n":"seven"}}`, `{"action":"accept","content":{"n":7}}`,
	},
	{
		"url", inquiry.Elicitation, `{"mode":"url","message":"Log in","url":"https://example.com/a?b=1","elicitationId":"e1"}`,
		`"url":"https://example.com/a?b=1"`,
		`{"action":"accept"}`, `{"action":"perhaps"}`, `{"action":"accept"}`,
	},
	{
		"sampling", inquiry.Sampling, `{"messages":[{"role":"user","content":{"type":"text","text":"Say <hi>"}}],"maxTokens":10,"temperature":0}`,
		`"temperature":0`,
		`{"role":"assistant","content":{"type":"text","text":"<hi>"},"model":"m"}`, `{"role":"nobody","content":{"type":"text","text":"hi"},"model":"m"}`,
		`{"role":"assistant","content":{"type":"text","text":"<hi>"},"model":"m"}`,
	},
	{
		"roots", inquiry.Roots, `{}`, `{}`,
		`{"roots":[{"uri":"file:///a","name":"A"}]}`, `{"roots":[` + strings.Repeat(`{"uri":"file:///a"},`, 256) + `{"uri":"file:///a"}]}`, `{"roots":[{"uri":"file:///a","name":"A"}]}`,
	},
}

func kindOf(name string) demand {
	return kinds[slices.IndexFunc(kinds, func(k demand) bool { return k.name == name })]
}

// inquiringExecutor runs code whose words are kinds: a server asks them all at once.
type inquiringExecutor struct {
	stubExecutor
	book *approval.Book
}

func (e *inquiringExecutor) Submit(req broker.Request) func(context.Context) *broker.Result {
	e.stubExecutor.Submit(req)
	return func(ctx context.Context) *broker.Result {
		p := req.Principal
		p.Request, p.Connection = req.RequestID, "this one"
		words := strings.Fields(req.Code)
		texts := make([]string, len(words))
		var all sync.WaitGroup
		for i, word := range words {
			all.Go(func() {
				k := kindOf(word)
				r, err := inquiry.Parse(k.method, json.RawMessage(k.params))
				var result json.RawMessage
				if err == nil {
					result, err = e.book.Inquire(ctx, p, &authz.Server{Name: "files"}, r)
				}
				texts[i] = fmt.Sprintf("%s got %s", word, result)
				if err != nil {
					texts[i] = fmt.Sprintf("%s failed: %v", word, err)
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			return broker.CancelledBefore()
		}
		return &broker.Result{Status: broker.Success, Stdout: []string{strings.Join(texts, "\n")}}
	}
}

// takesAll is a client that can be asked everything.
const takesAll = `"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true}`

// era is how a client is asked.
type era struct {
	name              string
	stateless, tasked bool
	sdkOnly           bool
}

var eras = []era{
	{"by request", false, false, false}, {"by request, SDK only", false, false, true},
	{"by result", true, false, false}, {"by result, SDK only", true, false, true},
	{"by task", true, true, false}, {"by task, SDK only", true, true, true},
}

// inquired is a client whose call is asked something.
type inquired struct {
	*client
	era
	book *approval.Book
	exec *inquiringExecutor
	meta string

	code   string
	answer map[string]any // the last, of the call
	task   string
	key    string // of the question: its ID, a state, or a key of a task
	seen   map[string]bool
}

// inquire connects a client with these capabilities.
func inquire(t *testing.T, e era, capabilities string) *inquired {
	t.Helper()
	exec := &inquiringExecutor{book: approval.New(approval.Config{Timeout: time.Hour, Log: slog.New(slog.DiscardHandler)})}
	config := Config{SDKOnly: e.sdkOnly, Executor: exec, Approvals: exec.book, Connection: "this one"}
	if e.tasked {
		config.Tasks = tasks.New(tasks.Options{Log: slog.New(slog.DiscardHandler), Dir: store.At(t.TempDir()), Moment: time.Nanosecond})
		t.Cleanup(func() { config.Tasks.Close(broker.ErrStop) })
		capabilities += `,"extensions":{"io.modelcontextprotocol/tasks":{}}`
	}
	capabilities = "{" + strings.TrimPrefix(capabilities, ",") + "}"
	i := &inquired{client: serve(t, config), era: e, book: exec.book, exec: exec, meta: meta("test", capabilities), seen: map[string]bool{}}
	if !e.stateless {
		i.send(strings.Replace(fmt.Sprintf(initialize, legacyLatest), `"capabilities":{}`, `"capabilities":`+capabilities, 1))
		i.receive()
		i.send(initialized)
	}
	return i
}

// begin calls run_python.
func (i *inquired) begin(code string) {
	i.t.Helper()
	i.code = code
	switch {
	case !i.stateless:
		i.send(call("1", code, ""))
	case i.tasked:
		i.task = i.run("1", code, i.meta)["taskId"].(string)
	default:
		i.answer = i.run("1", code, i.meta)
	}
}

// question returns what the client is asked next, in JSON.
func (i *inquired) question() (method, params string) {
	i.t.Helper()
	var q map[string]any
	switch {
	case !i.stateless:
		q = i.unlessWithdrawn()
		id, _ := json.Marshal(q["id"])
		i.key = string(id)
	case i.tasked:
		for hangs := time.Now().Add(time.Minute); q == nil; time.Sleep(time.Millisecond) {
			task, _ := i.request("2", "tasks/get", fmt.Sprintf(`"taskId":%q,%s`, i.task, i.meta))
			requests, _ := task["inputRequests"].(map[string]any)
			for key, r := range requests {
				if q == nil && !i.seen[i.task+key] {
					q, i.key, i.seen[i.task+key] = r.(map[string]any), key, true
				}
			}
			if time.Now().After(hangs) {
				i.t.Fatalf("got the task %v, want a question", task)
			}
		}
	default:
		requests, _ := i.answer["inputRequests"].(map[string]any)
		q, _ = requests["input"].(map[string]any)
		i.key, _ = i.answer["requestState"].(string)
		if i.answer["resultType"] != "input_required" || len(requests) != 1 || i.key == "" {
			i.t.Fatalf("got %v, want a question", i.answer)
		}
	}
	method, _ = q["method"].(string)
	if q["params"] == nil && method == inquiry.Roots {
		q["params"] = map[string]any{}
	}
	raw, err := marshal(q["params"])
	if err != nil {
		i.t.Fatal(err)
	}
	return method, string(raw)
}

// reply answers the last question.
func (i *inquired) reply(result string) {
	i.t.Helper()
	switch {
	case !i.stateless:
		i.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, i.key, result))
	case i.tasked:
		if _, failure := i.request("3", "tasks/update", fmt.Sprintf(`"taskId":%q,"inputResponses":{%q:%s},%s`, i.task, i.key, result, i.meta)); failure != nil {
			i.t.Fatal(failure)
		}
	default:
		var failure map[string]any
		if i.answer, failure = i.repeat(i.code, i.key, result); failure != nil {
			i.t.Fatalf("got %v", failure)
		}
	}
}

// repeat repeats a call with an answer.
func (i *inquired) repeat(code, state, result string) (answer, failure map[string]any) {
	i.t.Helper()
	return i.request("4", "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":%q},"requestState":%q,"inputResponses":{"input":%s},%s`, code, state, result, i.meta))
}

// ends checks what the call has come to.
func (i *inquired) ends(want ...string) {
	i.t.Helper()
	var got string
	switch {
	case !i.stateless:
		got = fmt.Sprint(i.unlessWithdrawn()["result"])
	case i.tasked:
		for {
			task, _ := i.request("5", "tasks/get", fmt.Sprintf(`"taskId":%q,%s`, i.task, i.meta))
			if got = fmt.Sprint(task["result"], task["error"]); task["status"] != "working" {
				break
			}
		}
	default:
		got = fmt.Sprint(i.answer["content"])
	}
	for _, text := range want {
		if !strings.Contains(got, text) {
			i.t.Errorf("%s, %s: got %s, want %q", i.name, i.code, got, text)
		}
	}
}

// TestInquiries: what a server asks reaches the client, whatever its era, and its
// answer the server. A wrong answer of a person is asked for again.
func TestInquiries(t *testing.T) {
	for _, e := range eras {
		i := inquire(t, e, takesAll)
		for _, k := range kinds {
			asked := func(again bool) {
				t.Helper()
				method, params := i.question()
				if got := strings.Contains(params, "This answer does not count: "); method != k.method || got != again || !again && !strings.Contains(params, k.shown) {
					t.Errorf("%s, %s: asked %s %s, want %s with %s", e.name, k.name, method, params, k.method, k.shown)
				}
			}
			i.begin(k.name)
			asked(false)
			i.reply(k.wrong)
			if k.method != inquiry.Elicitation {
				i.ends(k.name + " failed: the user refused")
				if e.stateless { // others keep what they are told, until it changes
					i.begin(k.name)
				} else {
					i.send(rootsChanged)
					i.begin(k.name)
				}
				asked(false)
			} else {
				asked(true)
			}
			i.reply(k.right)
			i.ends(k.name + " got " + k.result)
			if k.method == inquiry.Elicitation {
				i.begin(k.name)
				asked(false)
				i.reply(`{"action":"decline"}`)
				i.ends(k.name + ` got {"action":"decline"}`)
			}
		}
		if err := i.end(); err != nil {
			t.Error(err)
		}
	}
}

// TestTakes: what a client declares is what it can be asked, and no more.
func TestTakes(t *testing.T) {
	for _, tt := range []struct {
		declared string
		want     inquiry.Takes
	}{
		{``, inquiry.Takes{}},
		{`"experimental":{"elicitation":{},"roots":{},"sampling":{}}`, inquiry.Takes{}},
		{`"elicitation":{}`, inquiry.Takes{Forms: true}},
		{`"elicitation":{"form":{}}`, inquiry.Takes{Forms: true}},
		{`"elicitation":{"url":{}}`, inquiry.Takes{URLs: true}},
		{`"sampling":{}`, inquiry.Takes{Sampling: true}},
		{`"sampling":{"tools":{}}`, inquiry.Takes{Sampling: true}},
		{`"roots":{}`, inquiry.Takes{Roots: true}},
		{takesAll, inquiry.Takes{Forms: true, URLs: true, Sampling: true, Roots: true}},
	} {
		for _, e := range eras {
			i := inquire(t, e, tt.declared)
			for range 2 { // the second may go past the SDK
				if i.stateless {
					i.run("1", " ", i.meta)
				} else {
					i.send(call("1", " ", ""))
					i.receive()
				}
			}
			i.exec.mu.Lock()
			for _, p := range i.exec.principals {
				if p.Takes != tt.want {
					t.Errorf("%s, a client with %s: got %+v, want %+v", e.name, tt.declared, p.Takes, tt.want)
				}
			}
			i.exec.mu.Unlock()
			if err := i.end(); err != nil {
				t.Error(err)
			}
		}
		for _, k := range kinds {
			r, err := inquiry.Parse(k.method, json.RawMessage(k.params))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := fits(tt.want, &approval.Question{Asks: r}), tt.want.Of(r); got != want {
				t.Errorf("a client with %s is asked %s: got %v, want %v", tt.declared, k.name, got, want)
			}
		}
		if got := fits(tt.want, &approval.Question{}); got != tt.want.Forms {
			t.Errorf("a client with %s is asked about calls: got %v", tt.declared, got)
		}
	}
}

// elsewhere answers the question that is open, as another channel does.
func (i *inquired) elsewhere(choice approval.Choice, result string) {
	i.t.Helper()
	q, err := i.book.Next(i.t.Context(), func(*approval.Question) bool { return true })
	if err == nil {
		_, err = i.book.Answer(approval.Answer{ID: q.ID, Revision: 1, Choice: choice, Result: json.RawMessage(result), By: "elsewhere"})
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

// TestInquiriesOfOtherChannels: a client that cannot be asked is not, one that fails
// leaves to others what people answer, and a question that others answer is withdrawn.
func TestInquiriesOfOtherChannels(t *testing.T) {
	i := inquire(t, eras[0], `"roots":{},"sampling":{}`)
	i.begin("form")
	i.elsewhere(approval.Reply, `{"action":"accept","content":{"n":8}}`)
	i.ends(`form got {"action":"accept","content":{"n":8}}`)
	i.begin("sampling")
	i.question()
	i.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"not now"}}`, i.key))
	i.ends("sampling failed: the user refused")

	i = inquire(t, eras[0], takesAll)
	i.begin("form")
	i.question()
	i.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"not now"}}`, i.key))
	i.elsewhere(approval.No, "")
	i.ends(`form got {"action":"decline"}`)
	i.begin("form")
	i.question()
	i.elsewhere(approval.No, "")
	got := fmt.Sprint(i.receive(), i.receive()) // in either order
	if !strings.Contains(got, "params:map[requestId:"+i.key+"]") || !strings.Contains(got, `form got {"action":"decline"}`) {
		t.Errorf("got %s, want that question %s is withdrawn", got, i.key)
	}
	i.reply(`{"action":"cancel"}`) // too late
	i.begin("form")
	i.question()
	i.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if m := i.receive(); m["method"] != "notifications/cancelled" || fmt.Sprint(m["params"]) != "map[requestId:"+i.key+"]" {
		t.Errorf("a cancelled call: got %v, want that question %s is withdrawn", m, i.key)
	}
}

// TestInquiriesAtOnce: a form that waits for a person holds up nothing else, and the
// roots are asked for once.
func TestInquiriesAtOnce(t *testing.T) {
	i := inquire(t, eras[0], takesAll)
	i.begin("form roots sampling roots url sampling")
	keys := map[string][]string{}
	for range 4 { // a person is asked one thing at a time
		method, _ := i.question()
		keys[method] = append(keys[method], i.key)
	}
	if len(keys[inquiry.Elicitation]) != 1 || len(keys[inquiry.Roots]) != 1 || len(keys[inquiry.Sampling]) != 2 {
		t.Fatalf("got %v, want one question for a person, the roots once and two samples", keys)
	}
	for _, method := range []string{inquiry.Sampling, inquiry.Roots, inquiry.Elicitation} {
		for _, i.key = range keys[method] {
			i.reply(map[string]string{inquiry.Sampling: kindOf("sampling").right, inquiry.Roots: kindOf("roots").right, inquiry.Elicitation: `{"action":"decline"}`}[method])
		}
	}
	i.question()
	i.reply(`{"action":"decline"}`)
	i.ends()
	if len(i.book.List()) != 0 {
		t.Errorf("questions are open: %v", i.book.List())
	}
	i.begin("roots")
	i.ends("roots got " + kindOf("roots").result)

	for _, e := range eras[2:] { // the roots once in a call, and one question after the other by a result
		i := inquire(t, e, takesAll)
		i.begin("roots")
		i.question()
		i.reply(kindOf("roots").right)
		i.ends("roots got " + kindOf("roots").result)
		if e.tasked {
			continue
		}
		i.begin("roots roots form")
		for range 2 {
			if method, _ := i.question(); method == inquiry.Roots {
				i.reply(kindOf("roots").right)
			} else {
				i.reply(kindOf("form").right)
			}
		}
		i.ends("roots got "+kindOf("roots").result, "form got "+kindOf("form").result)
	}
}

// TestInquiriesByResultEnd: a client gives up after so many results that ask. What
// nobody else can answer is refused then.
func TestInquiriesByResultEnd(t *testing.T) {
	i := inquire(t, eras[2], takesAll)
	i.begin(strings.Repeat("sampling ", maxRounds+2))
	for range maxRounds {
		i.question()
		i.reply(kindOf("sampling").right)
	}
	got := fmt.Sprint(i.answer["content"])
	if answered, refused := strings.Count(got, "sampling got"), strings.Count(got, "the user refused"); answered != maxRounds || refused != 2 {
		t.Errorf("got %s: %d answered and %d refused, want %d and 2", got, answered, refused, maxRounds)
	}
}

// TestInquiriesAreBound: only the call that repeats the one that asked, once, in time,
// on its connection and with an answer of the right kind, goes on with it.
func TestInquiriesAreBound(t *testing.T) {
	for _, e := range eras[2:4] {
		for _, k := range kinds {
			i, other := inquire(t, e, takesAll), inquire(t, e, takesAll)
			i.begin(k.name)
			other.begin(k.name)
			i.question()
			refuse := func(on *inquired, code, answer, why string) {
				t.Helper()
				if r, failure := on.repeat(code, i.key, answer); failure == nil || !strings.Contains(fmt.Sprint(failure["message"]), why) {
					t.Errorf("%s, %s: code %q with %s: got %v, %v, want %q", e.name, k.name, code, answer, r, failure, why)
				}
			}
			refuse(other, k.name, k.right, "no call waits for this requestState")
			refuse(i, "another", k.right, "other arguments")
			for _, wrong := range kinds {
				if wrong.method != k.method {
					refuse(i, k.name, wrong.right, "inputResponses.input must be the result of "+k.method)
				}
			}
			refuse(i, k.name, `"yes"`, "inputResponses")
			if r, failure := i.request("6", "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":%q},"requestState":%q,%s`, k.name, i.key, i.meta)); failure != nil || r["requestState"] != i.key {
				t.Errorf("no answer: got %v, %v, want the same question", r, failure)
			}
			i.reply(k.right)
			i.ends(k.name + " got " + k.result)
			refuse(i, k.name, k.right, "no call waits for this requestState")
			if got := i.exec.codes(); len(got) != 1 {
				t.Errorf("%s, %s: %q was run, want it once", e.name, k.name, got)
			}
			if err := errors.Join(i.end(), other.end()); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestInquiriesExpire: a call that its client does not repeat in time has ended.
func TestInquiriesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := inquire(t, eras[2], takesAll)
		i.begin("form")
		i.question()
		time.Sleep(parkedFor)
		synctest.Wait()
		if open := i.book.List(); len(open) != 0 {
			t.Errorf("got %v, want that nothing is asked any more", open)
		}
		if r, failure := i.repeat("form", i.key, kindOf("form").right); failure == nil || !strings.Contains(fmt.Sprint(failure["message"]), "has expired") {
			t.Errorf("got %v, %v, want that it has expired", r, failure)
		}
		if got := i.exec.codes(); len(got) != 1 {
			t.Errorf("%q was run, want it once", got)
		}
		if err := i.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestInquiriesOfCancelledTasks: nothing is asked for a task that has ended.
func TestInquiriesOfCancelledTasks(t *testing.T) {
	i := inquire(t, eras[4], takesAll)
	i.begin("form sampling")
	i.question()
	i.question()
	if _, failure := i.request("6", "tasks/cancel", fmt.Sprintf(`"taskId":%q,%s`, i.task, i.meta)); failure != nil {
		t.Fatal(failure)
	}
	task := i.terminal(i.task)
	for hangs := time.Now().Add(time.Minute); task["status"] == "input_required" && time.Now().Before(hangs); {
		task = i.terminal(i.task)
	}
	if task["status"] != "cancelled" || task["inputRequests"] != nil {
		t.Errorf("got %v, want a task that has ended", task)
	}
	if open := i.book.List(); len(open) != 0 {
		t.Errorf("got %v, want that nothing is asked any more", open)
	}
}
