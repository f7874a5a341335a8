package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sallyport/sallyport/internal/broker"
)

// talker answers every call with much text, one call at a time.
type talker struct {
	mu  sync.Mutex
	ran int
}

func (e *talker) End() {}
func (e *talker) Written(context.Context, string, uint64) (string, error) {
	return "", errors.New("not kept")
}
func (e *talker) Submit(broker.Request) func(context.Context) *broker.Result {
	return func(context.Context) *broker.Result {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ran++
		return &broker.Result{Status: broker.Success, Stdout: []string{strings.Repeat("x", 4<<20)}}
	}
}

// A client that never reads gives up its places in the queues of sessions, where
// others wait.
func TestStuckClientsGiveUpTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutlet()
		done := o.add(mostUnread + 1)
		c := &conn{unread: o}
		ran := false
		r := c.run(t.Context(), func(ctx context.Context) *broker.Result {
			ran = ctx.Err() == nil
			return &broker.Result{}
		})
		if ran || r.Status != broker.Failed || !strings.Contains(r.Error, "has not read") {
			t.Errorf("got %+v, and that code ran: %v; want an error", r, ran)
		}
		done()
		c.run(t.Context(), func(ctx context.Context) *broker.Result { ran = ctx.Err() == nil; return nil })
		if !ran {
			t.Error("nothing runs although the client has read")
		}
	})
}

// While a client does not read, no more code is run for it than what fits. When
// it reads, it gets every answer.
func TestUnreadAnswersHoldUpCode(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		t.Run(fmt.Sprintf("sdk %v", sdkOnly), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &talker{}
				c := serve(t, Config{Executor: e, SDKOnly: sdkOnly})
				c.send(fmt.Sprintf(initialize, legacyLatest))
				c.receive()
				c.send(initialized)
				const calls = 10
				for i := range calls {
					c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_python","arguments":{"code":"1"}}}`, i))
					synctest.Wait()
				}
				e.mu.Lock()
				ran := e.ran
				e.mu.Unlock()
				if ran < 2 || ran > 8 {
					t.Errorf("%d calls of 4 MB ran for a client that does not read, want 2 to 8", ran)
				}
				for range calls {
					c.receive()
				}
				if e.ran != calls {
					t.Errorf("%d calls ran in the end, want %d", e.ran, calls)
				}
			})
		})
	}
}
