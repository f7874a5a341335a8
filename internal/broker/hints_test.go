package broker

import (
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/wire"
)

// TestHints has, for each hint of the host, facts that it is for and facts that
// are nearly the same, for which there is none.
func TestHints(t *testing.T) {
	undefined := func(name, before, now string) *session.Outcome {
		return &session.Outcome{End: session.Raised, Lost: now, LostBefore: before,
			Error: &wire.Exception{Type: "NameError", Message: "name '" + name + "' is not defined"}}
	}
	timedOut := func(whole, fetching bool) *session.Outcome {
		return &session.Outcome{End: session.TimedOut, Limit: 600 * time.Second, Whole: whole, Fetching: fetching}
	}
	const most = 120 * time.Second
	tests := []struct {
		name string
		out  *session.Outcome
		asks time.Duration
		want string // empty: no hint
	}{
		{"more time", timedOut(false, false), 30 * time.Second, "pass timeout=120 for the most time that is allowed (setting timeouts.max)"},
		{"more time, near: it ended", &session.Outcome{End: session.Finished}, 30 * time.Second, ""},
		{"more time, near: while files were fetched", timedOut(false, true), 30 * time.Second, ""},
		{"less at once", timedOut(false, false), most, "do the work in several calls: variables stay between them. 120s is the most for one (setting timeouts.max)"},
		{"less at once, near: cancelled", &session.Outcome{End: session.Cancelled}, most, ""},
		{"whole run", timedOut(true, false), most, "call fewer tools at once, or with asyncio.gather: 600s is the most for one call in all (setting timeouts.wholeRun)"},
		{"lost variable", undefined("df", "it ran out of memory", ""), 30 * time.Second, "variables of earlier calls are gone (it ran out of memory): define what this code needs again"},
		{"lost variable, near: the same result says so", undefined("df", "it ran out of memory", "it ran out of memory"), 30 * time.Second, ""},
		{"lost variable, near: nothing was lost", undefined("df", "", ""), 30 * time.Second, ""},
		{"lost variable, near: a server", undefined("mcp_x", "it ran out of memory", ""), 30 * time.Second, ""},
		{"lost variable, near: another exception", &session.Outcome{End: session.Raised, LostBefore: "gone", Error: &wire.Exception{Type: "KeyError", Message: "'df'"}}, 30 * time.Second, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := ""
			if tt.want != "" {
				want = HintPrefix + tt.want
			}
			if got := strings.Join(hintsFor(&hintFacts{out: tt.out, asks: tt.asks, most: most}), "\n"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestHintOfALostSession: the call after the one that reported the loss still
// says why a variable is not there.
func TestHintOfALostSession(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	run := func(code string) *Result {
		return b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: code}})
	}
	has := func(r *Result) bool {
		return strings.Contains(r.Text(), "\n"+HintPrefix+"variables of earlier calls are gone (")
	}
	if r := run("x"); has(r) {
		t.Errorf("a new session: %s", r.Text())
	}
	run("x = 1")
	if r := run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"); r.StateLost == "" {
		t.Fatalf("%+v", r)
	}
	if r := run("x"); !has(r) {
		t.Errorf("after the loss: %s", r.Text())
	}
	if r := run("x = 1; x"); r.Status != Success || has(r) {
		t.Errorf("defined again: %s", r.Text())
	}
}

// TestHintOfAConnectionForEachCall: a client that connects anew for each call learns
// why its variables are gone, and others learn nothing of it.
func TestHintOfAConnectionForEachCall(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	run := func(id, name, session string, code ...string) *Result {
		c := b.as(id)
		defer c.End()
		c.Named(name)
		var r *Result
		for _, code := range code {
			r = c.Execute(t.Context(), Request{Principal: user, Session: session, Submission: Submission{Code: code}})
		}
		return r
	}
	for _, tt := range []struct {
		id, name, session string
		code              []string
		want              bool
	}{
		{"1", "framework", "", []string{"x"}, false},
		{"2", "framework", "", []string{"x"}, true},
		{"3", "framework", "", []string{"1 / 0"}, false},
		{"4", "framework", "", []string{"1", "x"}, false},
		{"5", "framework", "named", []string{"x"}, false},
		{"6", "another", "", []string{"x"}, false},
		{"7", "framework", "", []string{"Path"}, false}, // which the guest has a hint for
	} {
		r := run(tt.id, tt.name, tt.session, tt.code...)
		if got := strings.Contains(r.Text(), "each connection has variables of its own"); got != tt.want {
			t.Errorf("client %s, %s in session %q: hint %v, want %v:\n%s", tt.id, tt.name, tt.session, got, tt.want, r.Text())
		}
	}
}
