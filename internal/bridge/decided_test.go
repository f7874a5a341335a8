package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/wire"
)

// witness is a server that, at each call, looks for the decision that allows it.
type witness struct {
	*ear
	mu      sync.Mutex
	open    map[string]int // decisions that no call has used, by tool and arguments
	heard   int
	without []string // calls without a decision
}

func (w *witness) Open(context.Context, string) (Server, error) { return w, nil }

func (w *witness) CallTool(_ context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard++
	what := tool + string(arguments)
	if w.open[what]--; w.open[what] < 0 {
		w.without = append(w.without, what)
	}
	return json.RawMessage(`{}`), nil
}

// TestNoCallWithoutADecision: each call that a server hears has one earlier event
// of the journal that allows it, with the same arguments, and none has two.
func TestNoCallWithoutADecision(t *testing.T) {
	w := &witness{ear: &ear{}, open: map[string]int{}}
	j := journal.New(slog.New(slog.DiscardHandler))
	events := j.Subscribe(journal.Options{Topics: journal.Actions, Required: true, Handle: func(events []journal.Event, _ int) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range events {
			if d, ok := e.(*journal.Decided); ok && d.Allowed && d.Action == "call_tool" {
				w.open[d.Item+string(d.Arguments)]++
			}
		}
		return nil
	}})
	defer events.Close()
	b, err := New(Config{Source: w, Gate: authz.New(authz.Config{Policy: authz.Default(), Journal: j})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	const each = 50
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			x := b.Begin(self, []string{"fs"})
			for i := range each {
				tool := "t"
				if i%10 == 9 {
					tool = "forbidden" // by the definition
				}
				params := fmt.Sprintf(`{"server":"fs","tool":%q,"arguments":{"g":%d, "i":%d}}`, tool, g, i/2)
				_, _ = x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(params)})
			}
		})
	}
	all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := 8 * each * 9 / 10; w.heard != want || len(w.without) > 0 {
		t.Errorf("the server heard %d calls, want %d; without a decision: %s", w.heard, want, strings.Join(w.without, ", "))
	}
	for what, n := range w.open {
		if n != 0 {
			t.Errorf("%s: %d more decisions than calls", what, n)
		}
	}
}
