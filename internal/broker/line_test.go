//go:build unix

package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/session/places"
)

// TestClientsTakeTurns: executions wait for their turn and say which it is; too many are refused
// at once; a cancelled one leaves the line; and code of a client that has all it may
// delays no other client.
func TestClientsTakeTurns(t *testing.T) {
	t.Parallel()
	gate := gates{make(chan struct{})}
	b, _ := newBroker(t, func(p *parts) {
		p.servers = gate
		p.Executions = places.Limits{Running: 2, Queued: 100, ClientRunning: 1, ClientQueued: 3}
	})
	type call struct {
		done     chan *Result
		activity Activity
	}
	begin := func(ctx context.Context, client, session, code string) *call {
		c := &call{done: make(chan *Result, 1)}
		run := b.as(client).Submit(Request{Principal: user, Session: session, Activity: &c.activity, Servers: []string{"gate"}, Submission: Submission{Code: code, Timeout: time.Minute}})
		go func() { c.done <- run(ctx) }()
		return c
	}
	says := func(c *call, want string) {
		t.Helper()
		for range 10_000 {
			if c.activity.String() == want {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("it says %q, want %q", c.activity.String(), want)
	}
	runs := begin(t.Context(), "ann", "a", "await mcp_gate.wait()")
	says(runs, "calling gate.wait")
	second := begin(t.Context(), "ann", "b", "'b'")
	says(second, "waiting for its turn: 1st of 1")
	ctx, cancel := context.WithCancel(t.Context())
	third := begin(ctx, "ann", "c", "'c'")
	says(third, "waiting for its turn: 2nd of 2")
	fourth := begin(t.Context(), "ann", "b", "'d'")
	says(fourth, "waiting for earlier code of the session")
	refused := b.as("ann").Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "1"}})
	if refused.Status != Failed || !strings.Contains(refused.Error, "4 executions of this client run or wait") || !strings.Contains(refused.Error, "nothing was run") {
		t.Errorf("one too many: %+v", refused)
	}
	if running, waiting := b.Turns(); running != 1 || waiting != 2 {
		t.Errorf("%d run and %d wait, want 1 and 2", running, waiting)
	}
	want(t, b.as("bob").Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "'bob'"}}), Success, 0, "'bob'")
	cancel()
	if r := <-third.done; r.Status != Failed || r.Error != "Cancelled before the code ran" {
		t.Errorf("cancelled: %+v", r)
	}
	says(second, "waiting for its turn: 1st of 1")
	close(gate.open)
	for i, c := range []*call{runs, second, fourth} {
		want(t, <-c.done, Success, 0, []string{"'through'", "'b'", "'d'"}[i])
	}
	if running, waiting := b.Turns(); running+waiting != 0 {
		t.Errorf("afterwards, %d run and %d wait", running, waiting)
	}
	for i := range 5 { // and there is room again
		want(t, b.as("ann").Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: fmt.Sprint(i)}}), Success, 0, fmt.Sprint(i))
	}
}
