package jsonrpc

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
)

// A result for which its sandbox has no room waits in a file. It arrives whole
// when there is room, and the calls of others on the same connection do not
// wait for it.
func TestResultsWaitForTheirSandbox(t *testing.T) {
	for _, tt := range []struct {
		name   string
		size   int
		behind bool // the id is behind the result
	}{
		{"in memory first", 3 << 20, false},
		{"in memory first, id behind", 3 << 20, true},
		{"in a file at once", 20 << 20, false},
		{"in a file at once, id behind", 20 << 20, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host, dir := budget.NewHost(1), t.TempDir()
			mine, other := host.NewSandbox(), host.NewSandbox()
			c, peer := connect(t, Options{Budget: host, SpoolDir: dir})
			full := mine.Lease()
			if err := full.Acquire(t.Context(), 63<<20); err != nil {
				t.Fatal(err)
			}
			lease := mine.Lease()
			waits := make(chan outcome, 1)
			go func() {
				r, err := c.Call(budget.With(context.Background(), lease), "large", nil)
				waits <- outcome{r, err}
			}()
			peer.recv()
			result := `"` + strings.Repeat("é", tt.size/2) + `"`
			if tt.behind {
				peer.send(`{"result":%s,"jsonrpc":"2.0","id":1}`, result)
			} else {
				peer.send(`{"jsonrpc":"2.0","id":1,"result":%s}`, result)
			}
			small := make(chan outcome, 1)
			go func() {
				r, err := c.Call(budget.With(context.Background(), other.Lease()), "small", nil)
				small <- outcome{r, err}
			}()
			peer.recv()
			peer.send(`{"jsonrpc":"2.0","id":2,"result":"small"}`)
			if got := <-small; got.err != nil || string(got.result) != `"small"` {
				t.Errorf("beside a result that waits: got %q and %v, want a result", got.result, got.err)
			}
			if used := mine.Spool.Used(); used < int64(tt.size) {
				t.Errorf("%d bytes of disk are charged for a result of %d", used, tt.size)
			}
			if used := host.Lines.Used(); used != 0 {
				t.Errorf("%d bytes of memory are charged for lines that have been read, want 0", used)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("the files have names: %v, %v", left, err)
			}
			select {
			case got := <-waits:
				t.Fatalf("a result without room did not wait: %v", got.err)
			case <-time.After(20 * time.Millisecond):
			}
			full.Release()
			if got := <-waits; got.err != nil || string(got.result) != result {
				t.Errorf("got %d bytes and %v, want the result of %d bytes", len(got.result), got.err, len(result))
			}
			if lease.Held() < int64(tt.size) {
				t.Errorf("%d bytes are charged for a result of %d", lease.Held(), tt.size)
			}
			lease.Release()
			if mine.Used() != 0 || host.Spool.Used() != 0 {
				t.Errorf("%d bytes of memory and %d of disk are used in the end, want 0", mine.Used(), host.Spool.Used())
			}
		})
	}
}

// A call that ends while its result waits gives everything back.
func TestWaitingResultIsGivenUp(t *testing.T) {
	host := budget.NewHost(1)
	share := host.NewSandbox()
	c, peer := connect(t, Options{Budget: host, SpoolDir: t.TempDir()})
	full := share.Lease()
	if err := full.Acquire(t.Context(), 63<<20); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	lease := share.Lease()
	waits := make(chan error, 1)
	go func() {
		_, err := c.Call(budget.With(ctx, lease), "large", nil)
		waits <- err
	}()
	peer.recv()
	peer.send(`{"jsonrpc":"2.0","id":1,"result":"%s"}`, strings.Repeat("x", 20<<20))
	for end := time.Now().Add(time.Minute); share.Spool.Used() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the result does not arrive")
		}
	}
	why := errors.New("nobody wants it")
	cancel(why)
	if err := <-waits; !errors.Is(err, why) {
		t.Errorf("got %v, want the context's cause", err)
	}
	lease.Release()
	full.Release()
	if share.Used() != 0 || host.Spool.Used() != 0 {
		t.Errorf("%d bytes of memory and %d of disk are used in the end, want 0", share.Used(), host.Spool.Used())
	}
}

// What never fits, and what finds neither memory nor disk, is an error of its
// own call.
func TestResultsWithoutRoom(t *testing.T) {
	host := budget.NewHost(1)
	share := host.NewSandbox()
	c, peer := connect(t, Options{Budget: host, SpoolDir: t.TempDir()})
	ask := func(result string) error {
		lease := share.Lease()
		defer lease.Release()
		failed := make(chan error, 1)
		go func() {
			_, err := c.Call(budget.With(context.Background(), lease), "large", nil)
			failed <- err
		}()
		m := peer.recv()
		peer.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
		return <-failed
	}
	if err := ask(`"` + strings.Repeat("x", 100<<20) + `"`); !errors.Is(err, ErrTooLarge) || !errors.Is(err, budget.ErrTooLarge) {
		t.Errorf("100 MB: got %v, want ErrTooLarge", err)
	}
	disk := host.Spool
	if !disk.TryAcquire(4 << 30) {
		t.Fatal("the disk's budget cannot be used up")
	}
	if err := ask(`"` + strings.Repeat("x", 20<<20) + `"`); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "fewer large calls") {
		t.Errorf("without disk: got %v, want advice", err)
	}
	disk.Release(4 << 30)
	if err := ask(`"small"`); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
