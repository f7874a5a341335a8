package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge/results"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

// counting is a source of one server that counts its calls.
type counting struct {
	*stub
	mu    sync.Mutex
	calls map[string]int
	id    string
}

func (c *counting) Identity(context.Context, string) (id string, lasting bool, err error) {
	return c.id, false, nil
}

func (c *counting) Open(context.Context, string) (Server, error) { return &counted{c, c.id}, nil }

type counted struct {
	*counting
	of string
}

func (c *counted) Identity() string { return c.of }

func (c *counted) Tools(context.Context) ([]tool.Tool, error) {
	read, bad, write, odd := newTool("read", ""), newTool("bad", ""), newTool("write", ""), newTool("odd", "")
	read.ReadOnly, bad.ReadOnly = true, true
	return []tool.Tool{read, bad, write, odd}, nil
}

func (c *counted) CallTool(ctx context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[name]++
	return json.RawMessage(fmt.Sprintf(`{"isError":%v,"n":%d}`, name == "bad", c.calls[name])), nil
}

// cacheRules let results be used again for ten minutes; of odd, which is not
// read-only, in spite of that.
type cacheRules struct{ deny bool }

func (r *cacheRules) DecideCall(_ authz.Principal, of authz.Action) authz.Verdict {
	a, ok := of.(authz.CallTool)
	if !ok {
		return authz.Verdict{Effect: authz.Allow}
	}
	v := authz.Verdict{Effect: authz.Allow, Rule: "kept", Cache: &authz.CacheRule{For: 10 * time.Minute, Force: a.Tool == "odd"}}
	if r.deny {
		v.Effect = authz.Deny
	}
	return v
}
func (r *cacheRules) Broken(bool) error { return nil }

func TestReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := results.New(results.Config{Entries: 100, Bytes: 1 << 20})
		defer kept.Close()
		var events []string
		j := journal.New(slog.New(slog.DiscardHandler))
		listening := j.Subscribe(journal.Options{Topics: journal.Actions, Handle: func(all []journal.Event, _ int) error {
			for _, e := range all {
				switch e := e.(type) {
				case *journal.Decided:
					events = append(events, "decided")
				case *journal.Finished:
					events = append(events, fmt.Sprintf("cached %v", e.Cached))
				}
			}
			return nil
		}})
		rules := &cacheRules{}
		source := &counting{stub: newStub(), calls: map[string]int{}, id: "one"}
		b, err := New(Config{Source: source, Gate: authz.New(authz.Config{Policy: authz.Default(), Tools: rules, Journal: j}), Results: kept})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ann := self
		ann.Owner = "ann"
		for i, step := range []struct {
			call, more string
			by         authz.Principal
			do         func()
			sleep      time.Duration
			want       string // the result's number, or an error
			note       string
		}{
			{call: "read", want: "1"},
			{call: "read", sleep: 3 * time.Minute, want: "1", note: "fs.read: cached result, 3 min old"},
			{call: "read", by: ann, want: "2"},
			{call: "read", more: `,"fresh":true`, want: "3"},
			{call: "read", sleep: 30 * time.Second, want: "3", note: "fs.read: cached result, 30 s old"},
			{call: "bad", want: "1"},
			{call: "bad", want: "2"},
			{call: "odd", want: "1"},
			{call: "odd", want: "1", note: "fs.odd: cached result, 0 s old"},
			{call: "read", want: "3", note: "fs.read: cached result, 30 s old"},
			{call: "write", want: "1"},
			{call: "read", want: "4"},
			{call: "odd", want: "2"},
			{call: "write", want: "2"},
			{call: "read", do: func() { source.id = "two" }, want: "5"},
			{call: "read", do: func() { source.id = "two" }, want: "5", note: "fs.read: cached result, 0 s old"},
			{call: "read", do: func() { rules.deny = true }, want: "denied"},
		} {
			if step.do != nil {
				step.do()
			}
			time.Sleep(step.sleep)
			by := step.by
			if by.Owner == "" {
				by = self
			}
			x := b.Begin(by, []string{"fs"})
			if _, err := x.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			result, err := x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"fs","tool":"` + step.call + `","arguments":{}` + step.more + `}`)})
			var got struct{ N json.Number }
			_ = json.Unmarshal(result, &got)
			if err != nil {
				got.N = json.Number(err.(*wire.CallError).Kind) //nolint:errorlint // it always is
			}
			if got.N.String() != step.want {
				t.Errorf("step %d: got %s, want %s", i, got.N, step.want)
			}
			if note := strings.Join(x.Notes(), "; "); note != step.note {
				t.Errorf("step %d: got the note %q, want %q", i, note, step.note)
			}
		}
		listening.Close()
		said := strings.Join(events, ", ")
		if decided := strings.Count(said, "decided"); decided != 34 { // each call, and the listing before it
			t.Errorf("got %d decisions, want one for each call: %s", decided, said)
		}
		if n := strings.Count(said, "cached true"); n != 5 {
			t.Errorf("got %d calls that did not go out, want 5: %s", n, said)
		}
	})
}

// Many results of earlier calls make few notes.
func TestReusedNotes(t *testing.T) {
	var r reused
	for i := range 8 {
		r.add(fmt.Sprintf("s.t%d", i), time.Duration(i)*time.Hour)
		r.add(fmt.Sprintf("s.t%d", i), 72*time.Hour)
	}
	got := strings.Join(r.notes(), "; ")
	want := "s.t0: cached result, 3 days old; s.t1: 2 cached results, up to 3 days old"
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "; cached results of 3 more tools") {
		t.Errorf("got %s, want %s …", got, want)
	}
}

// trusting agrees to every call of the server that there is when it is asked, which
// has another definition by the time that the call goes out.
type trusting struct {
	source *counting
	then   string
}

func (p trusting) Ask(ctx context.Context, _ authz.Principal, a authz.Action, _ authz.Decision) (authz.Answer, error) {
	id, err := a.(authz.CallTool).Server.Identify(ctx)
	p.source.id = p.then
	return authz.Answer{Allowed: true, Server: id}, err
}
func (trusting) Waiting(string) string { return "" }
func (trusting) Ended(string)          {}

// TestConsentIsForAServer: what a person agreed to is not sent to a server whose
// definition has changed meanwhile, nor answered with its earlier results.
func TestConsentIsForAServer(t *testing.T) {
	for _, cached := range []bool{false, true} {
		for then, want := range map[string]string{"one": "", "two": wire.KindDenied} {
			source := &counting{stub: newStub(), calls: map[string]int{}, id: "one"}
			ask := &verdicts{authz.Verdict{Effect: authz.Ask, Rule: "r"}}
			if cached {
				ask.Cache = &authz.CacheRule{For: time.Minute, Force: true}
			}
			kept := results.New(results.Config{Entries: 100, Bytes: 1 << 20})
			b, err := New(Config{Source: source, Results: kept, Gate: authz.New(authz.Config{Policy: authz.Default(), Tools: ask, Asker: trusting{source, then}})})
			if err != nil {
				t.Fatal(err)
			}
			x := b.Begin(self, []string{"fs"})
			if _, err := x.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err = x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"fs","tool":"write","arguments":{}}`)})
			got := ""
			var failed *wire.CallError
			if errors.As(err, &failed) {
				got = failed.Kind
			}
			if sent := source.calls["write"]; got != want || (sent > 0) != (want == "") {
				t.Errorf("cached %v, then %s: got %q (%v) and %d calls sent, want %q", cached, then, got, err, sent, want)
			}
			b.Close()
			kept.Close()
		}
	}
}

// verdicts has one verdict for all calls.
type verdicts struct{ authz.Verdict }

func (v *verdicts) DecideCall(authz.Principal, authz.Action) authz.Verdict { return v.Verdict }
func (v *verdicts) Broken(bool) error                                      { return nil }
