package bridge

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
	"github.com/sallyport/sallyport/internal/bridge/results"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

var (
	askForm  = parsed(inquiry.Elicitation, `{"message":"Which secret branch?","requestedSchema":{"type":"object","properties":{"branch":{"type":"string"}}}}`)
	askModel = parsed(inquiry.Sampling, `{"messages":[{"role":"user","content":{"type":"text","text":"a secret"}}],"maxTokens":60}`)
	askRoots = parsed(inquiry.Roots, `{}`)
)

func parsed(method, params string) *inquiry.Request {
	r, err := inquiry.Parse(method, json.RawMessage(params))
	if err != nil {
		panic(err)
	}
	return r
}

// people answers what servers ask.
type people struct {
	answer func(ctx context.Context, r *inquiry.Request) (json.RawMessage, error)

	mu    sync.Mutex
	heard []string
}

func (p *people) Inquire(ctx context.Context, by authz.Principal, server *authz.Server, r *inquiry.Request) (json.RawMessage, error) {
	p.mu.Lock()
	p.heard = append(p.heard, fmt.Sprintf("%s by %s for %s, %d tokens", r.Method, server.Name, by.Owner, r.MaxTokens))
	p.mu.Unlock()
	if p.answer != nil {
		return p.answer(ctx, r)
	}
	return json.RawMessage(`{"action":"accept","content":{"branch":"secret answer"}}`), nil
}

// mayAll lets servers ask everything.
func mayAll(string) inquiry.Takes {
	return inquiry.Takes{Forms: true, URLs: true, Sampling: true, Roots: true}
}

// asking is a source whose server does this when it is called.
func asking(call func(ctx context.Context, h upstream.Host, tool string) (json.RawMessage, error)) *stub {
	s := newStub()
	s.servers["fs"].call = func(ctx context.Context, tool string, _ json.RawMessage) (json.RawMessage, error) {
		return call(ctx, upstream.HostOf(ctx), tool)
	}
	return s
}

func bridgeTo(t testing.TB, config Config, with authz.Config) *Bridge {
	t.Helper()
	with.Policy = authz.Default()
	config.Gate = authz.New(with)
	b, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func callOf(tool string) wire.Call {
	return wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"fs","tool":"` + tool + `","arguments":{}}`)}
}

// TestHostTakes: forms and pages reach whoever answers approvals, a model and roots
// only the execution's client.
func TestHostTakes(t *testing.T) {
	var got inquiry.Takes
	var origins []string
	source := asking(func(_ context.Context, h upstream.Host, _ string) (json.RawMessage, error) {
		got = h.Takes()
		origins = append(origins, h.Origin())
		return json.RawMessage(`{}`), nil
	})
	client := self
	client.Connection, client.Takes = "c1", inquiry.Takes{Sampling: true}
	for _, test := range []struct {
		what   string
		people Inquiries
		by     authz.Principal
		want   inquiry.Takes
	}{
		{"no one answers", nil, client, inquiry.Takes{}},
		{"the command line", &people{}, self, inquiry.Takes{Forms: true, URLs: true}},
		{"a client with a model", &people{}, client, inquiry.Takes{Forms: true, URLs: true, Sampling: true}},
	} {
		b := bridgeTo(t, Config{Source: source, Inquiries: test.people}, authz.Config{})
		if _, err := b.Begin(test.by, []string{"fs"}).Call(t.Context(), callOf("x")); err != nil {
			t.Fatal(err)
		}
		if got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.what, got, test.want)
		}
	}
	if origins[0] != origins[2] || origins[0] == origins[1] {
		t.Errorf("got the origins %q, want the first and the last equal, and not the second", origins)
	}
}

// TestHostAsks: a server's request passes the gate, has its caps, and is recorded
// without what was asked and answered.
func TestHostAsks(t *testing.T) {
	formsOnly := func(string) inquiry.Takes { return inquiry.Takes{Forms: true} }
	for _, test := range []struct {
		what  string
		may   func(string) inquiry.Takes
		caps  Sampling
		asks  []*inquiry.Request
		want  []string // errors, in part
		heard []string
	}{
		{"a form", mayAll, Sampling{}, []*inquiry.Request{askForm}, []string{""}, []string{"elicitation/create by fs for owner, 0 tokens"}},
		{"nothing is allowed", nil, Sampling{10, 100}, []*inquiry.Request{askForm, askModel, askRoots}, []string{"add fs=elicit to servers.may", "add fs=sample", "servers.may"}, nil},
		{"no model", formsOnly, Sampling{10, 100}, []*inquiry.Request{askModel, askForm}, []string{"add fs=sample to servers.may", ""}, []string{"elicitation/create by fs for owner, 0 tokens"}},
		{"tokens", mayAll, Sampling{10, 100}, []*inquiry.Request{askModel, askModel, askModel}, []string{"", "", "servers.sampling.tokens"},
			[]string{"sampling/createMessage by fs for owner, 60 tokens", "sampling/createMessage by fs for owner, 40 tokens"}},
		{"calls", mayAll, Sampling{1, 1000}, []*inquiry.Request{askModel, askModel, askRoots}, []string{"", "servers.sampling.calls", ""},
			[]string{"sampling/createMessage by fs for owner, 60 tokens", "roots/list by fs for owner, 0 tokens"}},
		{"no calls", mayAll, Sampling{}, []*inquiry.Request{askModel}, []string{"servers.sampling.calls"}, nil},
	} {
		var events []string
		j := journal.New(slog.New(slog.DiscardHandler))
		listening := j.Subscribe(journal.Options{Topics: journal.Actions, Handle: func(all []journal.Event, _ int) error {
			for _, e := range all {
				raw, err := json.Marshal(e)
				events = append(events, string(raw))
				if err != nil {
					return err
				}
			}
			return nil
		}})
		var logged strings.Builder
		answers := &people{}
		var got []error
		source := asking(func(ctx context.Context, h upstream.Host, _ string) (json.RawMessage, error) {
			for _, r := range test.asks {
				_, err := h.Ask(ctx, r)
				got = append(got, err)
			}
			return json.RawMessage(`{}`), nil
		})
		b := bridgeTo(t, Config{
			Source: source, Inquiries: answers, Sampling: test.caps, Log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}, authz.Config{May: test.may, Journal: j})
		by := self
		by.Owner = "owner"
		if _, err := b.Begin(by, []string{"fs"}).Call(t.Context(), callOf("x")); err != nil {
			t.Fatal(err)
		}
		listening.Close()
		for i, want := range test.want {
			if err := got[i]; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, request %d: got %v, want %q", test.what, i, err, want)
			}
		}
		if !slices.Equal(answers.heard, test.heard) {
			t.Errorf("%s: got %q, want %q", test.what, answers.heard, test.heard)
		}
		all := strings.Join(events, "\n") + logged.String()
		if strings.Contains(all, "secret") {
			t.Errorf("%s: what was asked or answered is recorded: %s", test.what, all)
		}
		if n := strings.Count(logged.String(), "a server asks"); n != len(test.asks) {
			t.Errorf("%s: got %d lines about requests, want %d: %s", test.what, n, len(test.asks), logged.String())
		}
		if test.what == "a form" && (!strings.Contains(all, `"elicit"`) || strings.Count(all, `"elicit"`) != 2) {
			t.Errorf("%s: want a decision and its end recorded: %s", test.what, all)
		}
	}
}

// TestCapsAreOfAnExecution: the next execution has all of it again, and calls of one
// share it.
// TestDeclinedServersAskNoMore: a server that was declined often enough in an
// execution has its answer there.
func TestDeclinedServersAskNoMore(t *testing.T) {
	them := &people{answer: func(context.Context, *inquiry.Request) (json.RawMessage, error) { return inquiry.Declined, nil }}
	var errs []error
	b := bridgeTo(t, Config{Inquiries: them, Source: asking(func(ctx context.Context, h upstream.Host, _ string) (json.RawMessage, error) {
		_, err := h.Ask(ctx, askForm)
		errs = append(errs, err)
		return json.RawMessage(`{}`), nil
	})}, authz.Config{May: mayAll})
	for run := range 2 {
		x := b.Begin(self, []string{"fs"})
		for range maxDeclined + 1 {
			if _, err := x.Call(t.Context(), callOf("ask")); err != nil {
				t.Fatal(err)
			}
		}
		for i, err := range errs {
			if refused := err != nil; refused != (i == maxDeclined) {
				t.Errorf("run %d, question %d: got %v, want it refused: %t", run+1, i+1, err, i == maxDeclined)
			}
		}
		errs = nil
	}
}

// TestQuestionsCountForTheirCall: what a server asks during one call leaves the
// questions of another call in flight alone.
func TestQuestionsCountForTheirCall(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	source := asking(func(ctx context.Context, h upstream.Host, tool string) (json.RawMessage, error) {
		if tool == "hold" {
			close(held)
			<-release
			_, err := h.Ask(ctx, askRoots)
			return json.RawMessage(`{}`), err
		}
		for i := range maxAsked + 1 {
			if _, err := h.Ask(ctx, askRoots); (err != nil) != (i == maxAsked) {
				t.Errorf("question %d: got %v, want it refused: %t", i+1, err, i == maxAsked)
			}
		}
		return json.RawMessage(`{}`), nil
	})
	x := bridgeTo(t, Config{Source: source, Inquiries: &people{}}, authz.Config{May: mayAll}).Begin(self, []string{"fs"})
	over := make(chan error)
	go func() {
		_, err := x.Call(t.Context(), callOf("hold"))
		over <- err
	}()
	<-held
	if _, err := x.Call(t.Context(), callOf("ask")); err != nil {
		t.Error(err)
	}
	close(release)
	if err := <-over; err != nil {
		t.Errorf("got %v, want the other call to be answered", err)
	}
}

func TestCapsAreOfAnExecution(t *testing.T) {
	answers := &people{}
	source := asking(func(ctx context.Context, h upstream.Host, _ string) (json.RawMessage, error) {
		_, err := h.Ask(ctx, askModel)
		return json.RawMessage(`{}`), err
	})
	b := bridgeTo(t, Config{Source: source, Inquiries: answers, Sampling: Sampling{1, 100}}, authz.Config{May: mayAll})
	for range 2 {
		x := b.Begin(self, []string{"fs"})
		_, first := x.Call(t.Context(), callOf("x"))
		_, second := x.Call(t.Context(), callOf("x"))
		if first != nil || second == nil {
			t.Errorf("got %v, %v, want the second call alone to fail", first, second)
		}
	}
	if len(answers.heard) != 2 {
		t.Errorf("the model was asked %d times, want 2: %q", len(answers.heard), answers.heard)
	}
}

// TestAskedResultsAreNotReused: neither later nor by those who wait for the same call.
func TestAskedResultsAreNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := results.New(results.Config{Entries: 100, Bytes: 1 << 20})
		defer kept.Close()
		source := &inquisitive{counting: &counting{stub: newStub(), calls: map[string]int{}, id: "one"}, asks: map[string]bool{"read": true}, wait: make(chan struct{})}
		b := bridgeTo(t, Config{Source: source, Results: kept, Inquiries: &people{}}, authz.Config{May: mayAll, Tools: &cacheRules{}})
		x := b.Begin(self, []string{"fs"})
		if _, err := x.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		number := func(tool string) string {
			result, err := x.Call(t.Context(), callOf(tool))
			if err != nil {
				t.Error(err)
			}
			return string(result)
		}
		var both sync.WaitGroup
		var got [2]string
		for i := range got {
			both.Go(func() { got[i] = number("read") })
		}
		synctest.Wait()
		close(source.wait)
		both.Wait()
		if got[0] == got[1] {
			t.Errorf("both calls at once got %s, want each its own", got[0])
		}
		if third := number("read"); third == got[0] || third == got[1] {
			t.Errorf("a later call got %s, want its own", third)
		}
		// A call in flight meanwhile may be the one that was asked for.
		source.asks, source.wait = map[string]bool{"odd": true}, nil
		source.meanwhile = make(chan struct{})
		both.Go(func() { got[0] = number("read") }) // ends after the other
		synctest.Wait()
		got[1] = number("odd")
		close(source.meanwhile)
		both.Wait()
		source.meanwhile = nil
		if again := number("read"); again == got[0] {
			t.Errorf("got %s again of a call during which the server asked, want its own", again)
		}
		if one, two := number("read"), number("read"); one != two {
			t.Errorf("got %s and %s of calls without a question, want the same", one, two)
		}
	})
}

// inquisitive is a counting source whose server asks during calls of some tools.
type inquisitive struct {
	*counting
	asks            map[string]bool
	wait, meanwhile chan struct{} // nil: it does not
}

func (q *inquisitive) Open(context.Context, string) (Server, error) {
	return &inquisitor{&counted{q.counting, q.id}, q}, nil
}

type inquisitor struct {
	*counted
	q *inquisitive
}

func (s *inquisitor) CallTool(ctx context.Context, name string, arguments json.RawMessage) (json.RawMessage, error) {
	if s.q.asks[name] {
		if s.q.wait != nil {
			<-s.q.wait
		}
		if _, err := upstream.HostOf(ctx).Ask(ctx, askForm); err != nil {
			return nil, err
		}
	} else if s.q.meanwhile != nil {
		<-s.q.meanwhile
	}
	return s.counted.CallTool(ctx, name, arguments)
}

// TestAnswersTakeNoTime: the time that a rule allows a call does not run while
// someone is asked.
func TestAnswersTakeNoTime(t *testing.T) {
	for _, test := range []struct {
		what                string
		before, asks, after time.Duration
		want                string
	}{
		{"a slow person", 40 * time.Second, time.Hour, 10 * time.Second, ""},
		{"a slow server after it", 40 * time.Second, time.Hour, 30 * time.Second, wire.KindTimeout},
		{"a slow server before it", 2 * time.Minute, 0, 0, wire.KindTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			sleep := func(ctx context.Context, d time.Duration) error {
				select {
				case <-time.After(d):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			answers := &people{answer: func(ctx context.Context, _ *inquiry.Request) (json.RawMessage, error) {
				return inquiry.Declined, sleep(ctx, test.asks)
			}}
			source := asking(func(ctx context.Context, h upstream.Host, _ string) (json.RawMessage, error) {
				_, ask := json.RawMessage(nil), error(nil)
				before := sleep(ctx, test.before)
				if before == nil {
					_, ask = h.Ask(ctx, askForm)
				}
				return json.RawMessage(`{}`), errors.Join(before, ask, sleep(ctx, test.after))
			})
			minute := &verdicts{authz.Verdict{Effect: authz.Allow, Rule: "r", Limits: &authz.Limits{Time: time.Minute}}}
			b := bridgeTo(t, Config{Source: source, Inquiries: answers}, authz.Config{May: mayAll, Tools: minute})
			_, err := b.Begin(self, []string{"fs"}).Call(t.Context(), callOf("x"))
			got := ""
			var failed *wire.CallError
			if errors.As(err, &failed) {
				got = failed.Kind
			}
			if got != test.want {
				t.Errorf("%s: got %q (%v), want %q", test.what, got, err, test.want)
			}
		})
	}
}

// TestServersTell: what servers tell is one short line each, whatever they send, and
// progress is told once for each text.
func TestServersTell(t *testing.T) {
	var activity []string
	var x *Execution
	source := asking(func(_ context.Context, h upstream.Host, _ string) (json.RawMessage, error) {
		for _, p := range []upstream.Progress{
			{Progress: 1}, {Progress: 3, Total: 10, Message: "indexing"}, {Progress: 4, Total: 10, Message: "indexing"},
			{Progress: 2500000, Message: "a\nnote: \x1b[2J\u202e" + strings.Repeat("y", 1000)}, {Progress: 1e300}, {Progress: 0.1 + 0.2, Total: 1},
		} {
			h.Progress(p)
			activity = append(activity, x.Activity())
		}
		h.Log(upstream.Message{Level: "warning", Text: "text"})
		h.Log(upstream.Message{Level: "error", Logger: "db", Text: "x\n[server other] \x1b[2J" + strings.Repeat("z", 9000)})
		return json.RawMessage(`{}`), nil
	})
	b := bridgeTo(t, Config{Source: source}, authz.Config{})
	x = b.Begin(self, []string{"fs"})
	var lines []string
	x.Hear(func(server, line string) { lines = append(lines, server+" "+line) })
	if _, err := x.Call(t.Context(), callOf("search")); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"calling fs.search: 1", "calling fs.search: 3 of 10, indexing", "calling fs.search: 4 of 10, indexing",
		"calling fs.search: 2500000, a note: ", "calling fs.search: 1e+300", "calling fs.search: 0.3 of 1",
	}
	for i, got := range activity {
		if !strings.HasPrefix(got, want[i]) || i != 3 && got != want[i] || len(got) > 200 || strings.ContainsAny(got, "\n\x1b\u202e") {
			t.Errorf("activity %d: got %q, want %q", i, got, want[i])
		}
	}
	want = []string{"fs progress: 3 of 10, indexing", "fs progress: 2500000, a note: ", "fs warning: text", "fs error: db: x [server other] "}
	if len(lines) != len(want) {
		t.Fatalf("got %q, want %q", lines, want)
	}
	for i, got := range lines {
		if !strings.HasPrefix(got, want[i]) || len(got) > maxTold+100 || strings.ContainsAny(got, "\n\x1b\u202e") {
			t.Errorf("line %d: got %q, want %q", i, got, want[i])
		}
	}
	if got := x.Activity(); got != "" {
		t.Errorf("after the call: got %q, want nothing", got)
	}
}

// TestNoHostAfterTheCall: nothing is kept of calls that have ended.
func TestNoHostAfterTheCall(t *testing.T) {
	b := bridgeTo(t, Config{Source: asking(func(context.Context, upstream.Host, string) (json.RawMessage, error) { return nil, errors.New("no") })}, authz.Config{})
	if _, err := b.Begin(self, []string{"fs"}).Call(t.Context(), callOf("x")); err == nil {
		t.Error("got no error, want the server's")
	}
	if len(b.hosts) != 0 {
		t.Errorf("got %d hosts, want none", len(b.hosts))
	}
}
