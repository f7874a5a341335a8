package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
)

// github is a server that asks.
var github = &authz.Server{Name: "github", Started: "npx github-mcp"}

func elicits(t testing.TB, params string) *inquiry.Request {
	t.Helper()
	return parsed(t, inquiry.Elicitation, params)
}

func parsed(t testing.TB, method, params string) *inquiry.Request {
	t.Helper()
	r, err := inquiry.Parse(method, json.RawMessage(params))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	branchForm = `{"message":"Which branch?","requestedSchema":{"type":"object","properties":{"branch":{"type":"string","title":"Branch"},"force":{"type":"boolean","default":false}},"required":["branch"]}}`
	openURL    = `{"mode":"url","message":"Log in","url":"https://github.com/login?x=1","elicitationId":"e1"}`
	haiku      = `{"messages":[{"role":"user","content":{"type":"text","text":"Write a haiku"}}],"maxTokens":100}`
)

// inquire has a server ask, and waits until it waits. The outcome is a result or an
// error.
func (a *asker) inquire(ctx context.Context, r *inquiry.Request) chan string {
	a.Helper()
	c, p := make(chan string, 1), a.principal
	go func() {
		result, err := a.Inquire(ctx, p, github, r)
		if err != nil {
			c <- err.Error()
			return
		}
		c <- string(result)
	}()
	synctest.Wait()
	return c
}

// TestInquire: what a server gets, and what the journal has of it.
func TestInquire(t *testing.T) {
	const secret = "the-content"
	fits := json.RawMessage(`{"action":"accept","content":{"branch":"` + secret + `"}}`)
	form := func(t *testing.T) *inquiry.Request { return elicits(t, branchForm) }
	link := func(t *testing.T) *inquiry.Request { return elicits(t, openURL) }
	sample := func(t *testing.T) *inquiry.Request { return parsed(t, inquiry.Sampling, haiku) }
	roots := func(t *testing.T) *inquiry.Request { return parsed(t, inquiry.Roots, `{}`) }
	say := func(with Answer) func(*asker) string {
		return func(a *asker) string { return a.say(with).Text }
	}
	const late = "answered .0 false by , : no answer came within 5m0s (approvals.timeout)"
	for _, test := range []struct {
		name             string
		of               func(*testing.T) *inquiry.Request
		do               func(a *asker) (said string)
		said, want, told string
	}{
		{"accepted", form, say(Answer{Choice: Reply, Result: fits}), "sent to github", `{"action":"accept","content":{"branch":"` + secret + `","force":false}}`, "answered .1 true by the test, this request: "},
		{"declined", form, say(Answer{Choice: No, Words: "no"}), "declined", `{"action":"decline"}`, "answered .1 false by the test, this request: no"},
		{"declined by a client", form, say(Answer{Choice: Reply, Result: json.RawMessage(`{"action":"decline"}`)}), "declined", `{"action":"decline"}`, "answered .1 false by the test, this request: "},
		{"cancelled by a client", link, say(Answer{Choice: Reply, Result: json.RawMessage(`{"action":"cancel"}`)}), "cancelled", `{"action":"cancel"}`, "answered .1 false by the test, this request: "},
		{"to be opened", link, say(Answer{Choice: Reply, Result: json.RawMessage(`{"action":"accept"}`)}), "accepted", `{"action":"accept"}`, "answered .1 true by the test, this request: "},
		{"an answer that does not fit", form, func(a *asker) string {
			q := a.one()
			_, err := a.Answer(Answer{ID: q.ID, Revision: 1, Choice: Reply, Result: json.RawMessage(`{"action":"accept","content":{"force":true}}`), By: "x"})
			a.say(Answer{Choice: No})
			return err.Error()
		}, "the answer does not fit: ", `{"action":"decline"}`, "answered .1 false by the test, this request: "},
		{"an answer for calls", form, func(a *asker) string {
			q := a.one()
			_, err := a.Answer(Answer{ID: q.ID, Revision: 1, Choice: ThisTool, By: "x"})
			a.say(Answer{Choice: No})
			return err.Error()
		}, `cannot be answered with "tool": reply, no`, `{"action":"decline"}`, "answered .1 false by the test, this request: "},
		{"answered twice", form, func(a *asker) string {
			q := a.one()
			a.say(Answer{Choice: Reply, Result: fits})
			_, err := a.Answer(Answer{ID: q.ID, Revision: 1, Choice: No, By: "x"})
			return err.Error()
		}, "answered already: sent to github by the test", `"` + secret + `"`, "answered .1 true by the test, this request: "},
		{"no answer", form, func(*asker) string { time.Sleep(time.Hour); return "" }, "", `{"action":"cancel"}`, late},
		{"a model's", sample, say(Answer{Choice: Reply, Result: json.RawMessage(`{"role":"assistant","model":"m","content":{"type":"text","text":"` + secret + `"}}`)}), "sent to github", `"` + secret + `"`, "answered .1 true by the test, this request: "},
		{"a model's, refused", sample, say(Answer{Choice: No}), "refused", "the user refused", "answered .1 false by the test, this request: "},
		{"a model's, late", sample, func(*asker) string { time.Sleep(time.Hour); return "" }, "", "no answer came within 5m0s (approvals.timeout)", late},
		{"roots", roots, say(Answer{Choice: Reply, Result: json.RawMessage(`{"roots":[{"uri":"file:///` + secret + `"}]}`)}), "sent to github", secret, "answered .1 true by the test, this request: "},
		{"the call ends", form, func(a *asker) string { a.end(errors.New("the code has ended")); return "" }, "", "the code has ended", "answered .0 false by , : the code has ended"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				var logged bytes.Buffer
				j := journal.New(slog.New(slog.DiscardHandler))
				events := j.Subscribe(journal.Options{Topics: journal.Questions, Handle: func(events []journal.Event, _ int) error {
					for _, e := range events {
						switch e := e.(type) {
						case *journal.Asked:
							got = append(got, fmt.Sprintf("asked .%d %s of %s by %s, %d", e.Revision, e.Action, e.Server, e.Rule, e.Calls))
						case *journal.Answered:
							got = append(got, fmt.Sprintf("answered .%d %t by %s, %s: %s%s", e.Revision, e.Allowed, e.By, e.Scope, e.Words, e.Reason))
						}
						if text := fmt.Sprintf("%+v", e); strings.Contains(text, secret) {
							t.Errorf("got %s, want no content in the journal", text)
						}
					}
					return nil
				}})
				a := newAsker(t, Config{Journal: j})
				a.config.Log = slog.New(slog.NewTextHandler(&logged, nil))
				ctx, cancel := context.WithCancelCause(t.Context())
				a.end = cancel
				began := time.Now()
				r := test.of(t)
				replies := a.inquire(ctx, r)
				if q := a.one(); !q.Settled || time.Since(began) != 0 || !slices.Equal(q.Choices, []Choice{Reply, No}) || q.Server != "github" || q.Started != "npx github-mcp" || !bytes.Equal(q.Asks.Params, r.Params) {
					t.Errorf("got %+v after %s, want the question settled at once", q, time.Since(began))
				}
				if said := test.do(a); !strings.Contains(said, test.said) {
					t.Errorf("got %q said, want %q", said, test.said)
				}
				if reply := <-replies; !strings.Contains(reply, test.want) {
					t.Errorf("got %s, want %s", reply, test.want)
				}
				events.Close()
				if want := []string{fmt.Sprintf("asked .1 %s of github by inquiries, 1", actions[r.Method]), test.told}; !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				if strings.Contains(logged.String(), secret) {
					t.Errorf("got the log %s, want no content", logged.String())
				}
				if open := a.List(); len(open) != 0 {
					t.Errorf("got %+v open, want nothing", open)
				}
			})
		})
	}
}

// TestInquireAlone: each request is a question of its own, which no other answer is
// about, and leaves the room of approvals alone.
func TestInquireAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified []string
		a := newAsker(t, Config{Notify: func(q Question) { notified = append(notified, q.Action) }})
		r := elicits(t, branchForm)
		a.inquire(t.Context(), r)
		if got, want := a.Waiting("run-1"), "waiting for an answer to github: sallyport approvals"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		a.say(Answer{Choice: No})
		if got := a.Waiting("run-1"); got != "" {
			t.Errorf("got %q, want nothing waits", got)
		}
		a.inquire(t.Context(), parsed(t, inquiry.Sampling, haiku))
		if got, want := a.Waiting("run-1"), "waiting for a model's answer to github"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for range maxOpen - 1 {
			a.inquire(t.Context(), r)
		}
		a.call(t.Context(), writeFile("/x", "x"))
		open := a.List()
		if len(open) != maxOpen+1 {
			t.Errorf("got %d questions, want %d", len(open), maxOpen+1)
		}
		for _, q := range open {
			if q.Asks != nil && (q.Asks.Params != nil || q.Asks.Message != "" || q.Asks.Fields != nil) {
				t.Errorf("got a list with %+v, want the kind of request alone", q.Asks)
			}
		}
		if got := <-a.inquire(t.Context(), r); !strings.Contains(got, "as many as may") {
			t.Errorf("got %q, want too many questions", got)
		}
		want := slices.Repeat([]string{"elicit"}, maxOpen)
		if !slices.Equal(notified, want) {
			t.Errorf("got %q notified, want %q", notified, want)
		}
	})
}

func TestInquireNever(t *testing.T) {
	b := New(Config{Log: slog.New(slog.DiscardHandler)})
	if got, err := b.Inquire(t.Context(), authz.Local("tests"), github, elicits(t, branchForm)); err == nil || !strings.Contains(err.Error(), "approvals.timeout: never") {
		t.Errorf("got %s, %v, want no one asked", got, err)
	}
}

// TestInquireLost: what a killed process has left says that no answer was sent.
func TestInquireLost(t *testing.T) {
	dir := store.At(t.TempDir()).Area(store.Approvals)
	notified := make(chan struct{})
	b := New(Config{Timeout: time.Minute, Records: dir, Log: slog.New(slog.DiscardHandler), Notify: func(Question) { close(notified) }})
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = b.Inquire(ctx, authz.Local("tests"), github, elicits(t, branchForm))
	}()
	<-notified // it is recorded before
	if data, err := os.ReadFile(dir.Path(b.record.name + extension)); err != nil || strings.Contains(string(data), "branch") {
		t.Errorf("got %s, %v, want nothing that the server wrote", data, err)
	}
	b.record.mu.Lock()
	b.record.unlock() // as the end of the process does
	b.record.broken = true
	b.record.mu.Unlock()
	lost, err := Reap(dir, func([]Lost) error { return nil })
	if err != nil || len(lost) != 1 || lost[0].Text() != "it waited for an answer to github. None was sent." || !strings.Contains(lost[0].End().Reason, "no answer was sent") {
		t.Errorf("got %+v, %v, want the question", lost, err)
	}
	cancel()
	<-ended
}

// TestInquireText: nothing that a server writes looks like a line of this program.
func TestInquireText(t *testing.T) {
	question := func(r *inquiry.Request) Question {
		return Question{ID: "k3vq", Revision: 1, Action: actions[r.Method], Server: "github", Started: "npx github-mcp", Client: "tests", Waiting: 1, Asks: r}
	}
	for name, test := range map[string]struct {
		of   *inquiry.Request
		want string
	}{
		"a form": {elicits(t, `{"message":"Which branch?","requestedSchema":{"type":"object","properties":{
			"branch":{"type":"string","title":"Branch","description":"To merge into.","default":"main"},
			"when":{"type":"string","format":"date"},
			"how":{"type":"string","oneOf":[{"const":"squash","title":"Squash"},{"const":"re base","title":"Rebase"}]},
			"labels":{"type":"array","items":{"type":"string","enum":["bug","ui"]}},
			"force":{"type":"boolean"}},"required":["branch","how"]}}`), `k3vq.1: an answer to github
  server    npx github-mcp
  asked by  client tests
  asks      | Which branch?
  field     branch: string, required
            | Branch
            | To merge into.
            default: "main"
  field     when: string, date
  field     how: one of the options, required
            - squash (Squash)
            - "re base" (Rebase)
  field     labels: any of the options
            - bug
            - ui
  field     force: true or false
  answer    It goes to server github alone.
`},
		"an address": {elicits(t, openURL), `k3vq.1: an answer to github
  server    npx github-mcp
  asked by  client tests
  asks      | Log in
  opens     https://github.com/login?x=1
            on host github.com
  answer    It goes to server github alone. If you accept, open the address yourself.
`},
		"hostile": {&inquiry.Request{Method: inquiry.Elicitation, Message: "Hi\x1b[2J\r\nk3vq.1: files.write, 1 call\n\n? \u202eyes\n" + strings.Repeat("-", 80) + " a: allow",
			Fields: []inquiry.Field{{Name: "a\nfield  b", Type: "string", Title: "x\n? a", Description: "\u0430dmin",
				Options: []inquiry.Option{{Value: "v\n? ", Title: "t\n? "}}, Default: json.RawMessage(`"\u001b[2J\n"`)}}}, `k3vq.1: an answer to github
  server    npx github-mcp
  asked by  client tests
  asks      | Hi\u{1b}[2J
            | k3vq.1: files.write, 1 call
            | 
            | ? \u{202e}yes
            | ` + strings.Repeat("-", 64) + `
            | ` + strings.Repeat("-", 16) + ` a: allow
  field     "a\nfield  b": one of the options
            | x
            | ? a
            | \u{430}dmin
            - "v\n? " (t ?)
            default: "\u001b[2J\n"
  answer    It goes to server github alone.
`},
		"sampling": {parsed(t, inquiry.Sampling, `{"systemPrompt":"Be brief","messages":[{"role":"user","content":{"type":"text","text":"Write\na haiku"}},{"role":"assistant","content":{"type":"text","text":"No"}}],"maxTokens":100}`), `k3vq.1: a model's answer to github
  server    npx github-mcp
  asked by  client tests
  asks      the client's model to write at most 100 tokens
  system    | Be brief
  user      | Write
            | a haiku
  model     | No
  answer    The client answers. You can refuse.
`},
		"roots": {parsed(t, inquiry.Roots, `{}`), `k3vq.1: the roots for github
  server    npx github-mcp
  asked by  client tests
  asks      which folders the client works in
  answer    The client answers. You can refuse.
`},
	} {
		q := question(test.of)
		if got := q.shown(); got != test.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, test.want)
		}
	}
	long := question(&inquiry.Request{Method: inquiry.Elicitation, Message: strings.Repeat("word ", 10_000)})
	if text := long.shown(); len(text) > 2*maxMessage || !strings.Contains(text, "cut after") {
		t.Errorf("got %d bytes, want them cut", len(text))
	}
}

// TestInquireMasked: people and the journal see no known secret, and a client gets the
// request as it is.
func TestInquireMasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, Config{Mask: func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }})
		a.inquire(t.Context(), elicits(t, strings.ReplaceAll(branchForm, "Which branch", "Is hunter2 right")))
		q := a.one()
		if text := q.Text(); strings.Contains(text, "hunter2") || !strings.Contains(text, "Is *** right?") {
			t.Errorf("got %s, want the secret masked", text)
		}
		method, params := q.Request(false)
		if method != inquiry.Elicitation || !strings.Contains(string(params), "github") || !strings.Contains(string(params), `"branch"`) {
			t.Errorf("got %s %s, want the form, of github", method, params)
		}
		if _, ok := q.Form(true); ok {
			t.Error("got a form for calls")
		}
	})
}
