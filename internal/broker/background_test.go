//go:build unix

package broker

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// gates is a source of one server, whose tool "wait" answers once its gate is
// open.
type gates struct{ open chan struct{} }

func (gates) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "gate", Alias: "gate"}}
}

func (g gates) Open(context.Context, string) (bridge.Server, error) { return g, nil }

func (gates) Tools(context.Context) ([]tool.Tool, error) {
	return []tool.Tool{{Name: "wait", Alias: "wait", InputSchema: json.RawMessage(`{"type":"object"}`), Raw: json.RawMessage(`{"name":"wait"}`)}}, nil
}

func (g gates) CallTool(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
	select {
	case <-g.open:
		return json.RawMessage(`{"content":[{"type":"text","text":"through"}]}`), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// slow is a broker whose clients wait briefly, and the gate that its code waits
// for.
func slow(t *testing.T) (b *desk, open func(), ask func(session, code string) *Result) {
	g := gates{make(chan struct{})}
	b, _ = newBroker(t, func(p *parts) { p.servers, p.sessions.Grace = g, 20*time.Second })
	ask = func(name, code string) *Result {
		return b.as("c").Execute(t.Context(), Request{Principal: user, Session: name, Servers: []string{"gate"}, Within: 100 * time.Millisecond, Submission: Submission{Code: code}})
	}
	return b, func() { close(g.open) }, ask
}

// finish asks for the rest until there is one, and returns the last answer and
// all that was printed.
func finish(ask func(string, string) *Result, session string, r *Result) (*Result, []string) {
	printed := slices.Clone(r.Stdout)
	for r.Status == Running {
		r = ask(session, "")
		printed = append(printed, r.Stdout...)
	}
	return r, printed
}

const waits = "print('before', flush=True)\nawait mcp_gate.wait()\nprint('after')"

func TestCodeOutlivesItsCall(t *testing.T) {
	t.Parallel()
	_, open, ask := slow(t)
	first := ask("", waits)
	if first.Status != Running || first.IsError() || first.ExitCode != nil ||
		len(first.Notes) != 1 || !strings.Contains(first.Notes[0], "empty code") || !strings.Contains(first.Notes[0], `runtime.cancel("default")`) {
		t.Fatalf("got %+v, want an answer that says how to get the rest", first)
	}
	busy := ask("", "1")
	if busy.Status != Failed || !strings.Contains(busy.Error, "busy") || !strings.Contains(busy.Error, "print('before'") || !strings.Contains(busy.Error, "ago") {
		t.Errorf("got %+v, want an answer that says what runs and since when", busy)
	}
	if other, printed := finish(ask, "other", ask("other", "6 * 7")); other.Status != Success || !slices.Equal(printed, []string{"42"}) {
		t.Errorf("another session: got %+v, printed %q", other, printed)
	}
	open()
	last, printed := finish(ask, "", first)
	if diff := cmp.Diff([]string{"before", "after"}, printed); last.Status != Success || diff != "" {
		t.Errorf("the end: %+v\nprinted (-want +got):\n%s", last, diff)
	}
	again := ask("", "")
	if again.Status != Success || !slices.Equal(again.Stdout, last.Stdout) || len(again.Notes) != len(last.Notes)+1 || !strings.Contains(again.Notes[len(last.Notes)], "returned before") {
		t.Errorf("asked again: got %+v, want %+v and a note that it was returned before", again, last)
	}
	r, printed := finish(ask, "", ask("", "'new'"))
	if r.Status != Success || !slices.Equal(printed, []string{"'new'"}) || len(r.Notes) != 0 {
		t.Errorf("the next call: %+v, printed %q", r, printed)
	}
}

func TestUnreadResultsAreKept(t *testing.T) {
	t.Parallel()
	b, open, ask := slow(t)
	ask("", waits)
	at := place{session: session.Key{Name: DefaultSession, Client: "c"}, client: "c"}
	open()
	for b.tasks.running(at) != nil {
		time.Sleep(10 * time.Millisecond)
	}
	r := b.as("c").Execute(t.Context(), Request{Principal: user, Within: time.Hour, Submission: Submission{Code: "1"}})
	if r.Status != Success || !strings.Contains(strings.Join(r.Notes, "\n"), "was not read") {
		t.Errorf("got %+v, want a note that a result is unread", r)
	}
	if r := ask("", ""); r.Status != Success || !strings.HasSuffix(strings.Join(r.Stdout, "\n"), "after") {
		t.Errorf("got %+v, want the unread result", r)
	}
}

func TestNothingRunsInTheBackground(t *testing.T) {
	t.Parallel()
	_, _, ask := slow(t)
	if r := ask("", " \n"); r.Status != ValidationError || r.Error != "Missing 'code' argument" {
		t.Errorf("got %+v, want a validation error", r)
	}
}

func TestCancelBackgroundCode(t *testing.T) {
	t.Parallel()
	b, _, ask := slow(t)
	t.Run("from another session", func(t *testing.T) {
		first := ask("work", waits)
		for first.Status == Running && len(first.Stdout) == 0 { // until it runs
			first = ask("work", "")
		}
		for _, tt := range []struct{ session, code, want string }{
			{"other", "runtime.cancel('work')", "True"},
			{"other", "runtime.cancel('nothing')", "False"},
		} {
			r, printed := finish(ask, tt.session, ask(tt.session, tt.code))
			if diff := cmp.Diff([]string{tt.want}, printed); diff != "" {
				t.Errorf("%s: %+v\n%s", tt.code, r, diff)
			}
		}
		if r, _ := finish(ask, "work", first); r.Status != Failed || !strings.HasPrefix(r.Error, "Cancelled by code in another session") || !r.Interrupted {
			t.Errorf("got %+v, want a cancelled result", r)
		}
		if r, _ := finish(ask, "other", ask("other", "runtime.cancel('other')")); r.Status != Failed || !strings.Contains(r.Error, "its own") {
			t.Errorf("itself: got %+v, want an error", r)
		}
	})
	t.Run("by the client", func(t *testing.T) {
		first := ask("", waits)
		if first.Status != Running {
			t.Fatalf("got %+v", first)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := b.as("c").Execute(ctx, Request{Principal: user, Within: time.Hour})
		if r.Status != Failed || !strings.HasPrefix(r.Error, "Cancelled") {
			t.Errorf("got %+v, want a cancelled result", r)
		}
	})
	t.Run("of another client", func(t *testing.T) {
		r := b.as("d").Execute(t.Context(), Request{Principal: user, Within: time.Hour})
		if r.Status != ValidationError {
			t.Errorf("got %+v, want nothing of another client's session", r)
		}
	})
}

func TestBackgroundCodeEndsWithItsClient(t *testing.T) {
	t.Parallel()
	b, _, ask := slow(t)
	if r := ask("", waits); r.Status != Running {
		t.Fatalf("got %+v", r)
	}
	b.as("c").End()
	if r := ask("", ""); r.Status != ValidationError {
		t.Errorf("got %+v, want nothing to wait for", r)
	}
	if r := ask("", waits); r.Status != Running {
		t.Fatalf("got %+v", r)
	}
	b.Close() // and goleak sees that nothing is left
}

// TestCancelledAsTimeIsUp: a client that cancels its call gets no answer that says
// that its code goes on, even if the call's time is up in the same moment.
func TestCancelledAsTimeIsUp(t *testing.T) {
	for range 64 { // select chooses at random
		g := &tasks{}
		ended := &task{client: &Client{}, done: make(chan struct{}), result: &Result{Status: Failed}, partial: &session.Partial{}}
		ended.cancel = func(error) { close(ended.done) }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := g.wait(ctx, ended, 0, true); r != ended.result || len(g.list) != 0 {
			t.Fatalf("got %+v, want the cancelled code's result; %d tasks are kept", r, len(g.list))
		}
	}
}

// A client that only waited ends nothing by going away.
func TestWaitingClientLeaves(t *testing.T) {
	t.Parallel()
	b, open, ask := slow(t)
	first := ask("shared", waits)
	if first.Status != Running {
		t.Fatalf("got %+v", first)
	}
	ctx, leave := context.WithCancelCause(t.Context())
	leave(ErrStop)
	if r := b.as("c").Execute(ctx, Request{Principal: user, Session: "shared", Within: time.Hour}); r.Status != Running {
		t.Errorf("got %+v, want that the code goes on", r)
	}
	open()
	if r, printed := finish(ask, "shared", first); r.Status != Success || !slices.Contains(printed, "after") {
		t.Errorf("got %+v, printed %q, want the end of the code", r, printed)
	}
}

// A call that waits to the end gets everything, although others found it meanwhile.
func TestWholeResults(t *testing.T) {
	t.Parallel()
	b, open, ask := slow(t)
	var partial *Result
	whole := make(chan *Result)
	go func() {
		whole <- b.as("c").Execute(t.Context(), Request{
			Principal: user, Servers: []string{"gate"}, Within: time.Nanosecond, Whole: true, Submission: Submission{Code: waits},
		})
	}()
	for partial == nil || partial.Status == ValidationError { // until it is kept
		partial = ask("", "")
	}
	if partial.Status != Running || len(partial.Stdout) != 0 {
		t.Errorf("meanwhile: got %+v, want that it runs, and no output", partial)
	}
	if busy := ask("", "1"); busy.Status != Failed || !strings.Contains(busy.Error, "busy") {
		t.Errorf("meanwhile: got %+v, want that the session is busy", busy)
	}
	second := make(chan *Result)
	run := b.as("c").Submit(Request{Principal: user, Within: time.Nanosecond, Whole: true, Submission: Submission{Code: "'second'"}})
	go func() { second <- run(t.Context()) }()
	open()
	r := <-whole
	if r := <-second; r.Status != Success || !slices.Equal(r.Stdout, []string{"'second'"}) {
		t.Errorf("another whole one: got %+v, want that it has waited for its turn", r)
	}
	if diff := cmp.Diff([]string{"before", "after"}, r.Stdout); r.Status != Success || len(r.Notes) != 0 || diff != "" {
		t.Errorf("got %+v, printed (-want +got):\n%s", r, diff)
	}
}

func TestKeptResultsAreBounded(t *testing.T) {
	var log strings.Builder
	list := func(results ...*Result) *tasks {
		g := &tasks{log: slog.New(slog.NewTextHandler(&log, nil))}
		for i, r := range results {
			k := &task{place: place{service: string(rune('a' + i))}, label: "x", kept: true, result: r}
			if r != nil {
				k.end = time.Now()
			}
			g.list = append(g.list, k)
		}
		return g
	}
	names := func(g *tasks) (s string) {
		for _, t := range g.list {
			s += t.place.service
		}
		return s
	}
	small, large := &Result{}, &Result{Stdout: []string{strings.Repeat("x", maxTaskBytes/2)}}
	t.Run("read long ago", func(t *testing.T) {
		g := list(small, small, nil)
		g.list[0].read = time.Now().Add(-keptAfterRead - time.Minute)
		g.list[1].read = time.Now()
		if g.expire(""); names(g) != "bc" {
			t.Errorf("got %s, want bc", names(g))
		}
	})
	t.Run("too large, the read first", func(t *testing.T) {
		g := list(large, nil, large, small)
		g.list[2].read = time.Now()
		if g.expire(""); names(g) != "abd" || log.String() != "" {
			t.Errorf("got %s, want abd; log %s", names(g), log.String())
		}
	})
	t.Run("of another client", func(t *testing.T) {
		g := list(large, large, small)
		g.list[0].place.client = "other"
		if g.expire(""); names(g) != "abc" || log.String() != "" {
			t.Errorf("got %s, want abc; log %s", names(g), log.String())
		}
	})
	t.Run("too large, unread", func(t *testing.T) {
		g := list(large, large, small)
		if g.expire(""); names(g) != "bc" || !strings.Contains(log.String(), "dropped") {
			t.Errorf("got %s, want bc; log %s", names(g), log.String())
		}
	})
}

func TestFirstLine(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"\n \n  x = 1\ny", "x = 1"},
		{"a\x1b[1m\u202eb", "a [1m b"},
		{strings.Repeat("ü", 40), strings.Repeat("ü", 30) + "…"},
	} {
		if got := firstLine(tt.in); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.in, got, tt.want)
		}
	}
}
