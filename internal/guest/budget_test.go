//go:build unix

package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/guest/guesttest"
	"github.com/sallyport/sallyport/internal/wire"
)

// waitUntil waits for what needs no more than the other goroutines' turn.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// Large requests that are under way are as many as the budget holds; the rest
// waits in the guest's pipe, and comes when there is room.
func TestLargeRequestsWait(t *testing.T) {
	share := budget.NewHost(1).NewSandbox()
	s := script(t, Options{Budget: share})
	const calls, size = 8, 20 << 20
	var under, most atomic.Int64
	turn := make(chan struct{})
	x, _ := s.start(guesttest.NewHandler(func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		most.Store(max(most.Load(), under.Add(1)))
		<-turn
		under.Add(-1)
		return json.RawMessage(fmt.Sprint(len(c.Params))), nil
	}))
	params := `"` + strings.Repeat("x", size) + `"`
	go func() {
		for id := range calls {
			s.control(`{"type":"call","id":%d,"run":%d,"method":"call_tool","params":%s}`, id+1, x.ID(), params)
		}
	}()
	waitUntil(t, "the first call", func() bool { return under.Load() > 0 })
	if used := share.Requests.Used(); used < size {
		t.Errorf("%d bytes are charged for a request of %d", used, size)
	}
	close(turn)
	for range calls {
		if m := s.next(); m["ok"] != true || m["result"] != float64(size+2) {
			t.Errorf("got the reply %v, want %d", m, size+2)
		}
	}
	if most.Load() != 1 {
		t.Errorf("%d requests of %d bytes are under way at a time, want 1", most.Load(), size)
	}
	waitUntil(t, "everything is released", func() bool { return share.Used() == 0 })
}

// A large request that finds no room for long is refused, and what is behind it
// arrives.
func TestLargeRequestIsRefused(t *testing.T) {
	share := budget.NewHost(1).NewSandbox()
	s := script(t, Options{Budget: share, Patience: 100 * time.Millisecond})
	x, nonce := s.start(guesttest.NewHandler(func(ctx context.Context, _ wire.Call) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	params := `"` + strings.Repeat("x", 20<<20) + `"`
	go func() {
		for id := range 2 {
			s.control(`{"type":"call","id":%d,"run":%d,"method":"call_tool","params":%s}`, id+1, x.ID(), params)
		}
		s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
		s.output(wire.KindNonce, nonce)
	}()
	m := s.next()
	if e, _ := m["error"].(map[string]any); m["id"] != float64(2) || e["kind"] != wire.KindLimit {
		t.Errorf("got the reply %v, want a refusal of call 2", m)
	}
	<-x.Done()
	waitUntil(t, "everything is released", func() bool { return share.Used() == 0 })
}

// Replies that nobody reads are charged, hold up neither their execution's end
// nor the next one's start, and are released when the conversation ends.
func TestUnreadReplies(t *testing.T) {
	share := budget.NewHost(1).NewSandbox()
	s := script(t, Options{Budget: share})
	large := json.RawMessage(`"` + strings.Repeat("x", 10<<20) + `"`)
	x, nonce := s.start(guesttest.NewHandler(func(context.Context, wire.Call) (json.RawMessage, error) { return large, nil }))
	for id := range 200 {
		s.control(`{"type":"call","id":%d,"run":%d,"method":"call_tool","params":{}}`, id+1, x.ID())
	}
	waitUntil(t, "replies wait", func() bool { return share.Replies.Used() >= 30<<20 })
	s.control(`{"type":"done","id":%d,"status":"ok","exitCode":0}`, x.ID())
	s.output(wire.KindNonce, nonce)
	<-x.Done()
	started := make(chan error, 1)
	go func() {
		_, err := s.Start(wire.Exec{Code: "pass"}, guesttest.NewHandler(nil))
		started <- err
	}()
	select {
	case err := <-started:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("an execution does not start behind replies that nobody reads")
	}
	s.Close()
	waitUntil(t, "everything is released", func() bool { return share.Used() == 0 })
}
