package session

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session/usage"
)

// TestEveryExecutionIsAccounted: short ones too, and once each, whether their
// sandbox lives, ends or dies, and their sum is what was used.
func TestEveryExecutionIsAccounted(t *testing.T) {
	for _, last := range []string{"say done", "vanish"} {
		t.Run(last, func(t *testing.T) {
			var mu sync.Mutex
			var told []usage.Usage
			var cpu time.Duration
			var events *journal.Subscription
			e := &scripted{metered: true, guest: each(words)}
			s := newSingle(t, e, func(c *setup) {
				c.Journal = journal.New(slog.New(slog.DiscardHandler))
				events = c.Journal.Subscribe(journal.Options{Topics: journal.Usages, Handle: func(events []journal.Event, _ int) error {
					mu.Lock()
					defer mu.Unlock()
					for _, e := range events {
						if rest := e.(*journal.Used); rest.Kind != journal.BySession || rest.Name != "test" {
							t.Errorf("got %+v, want what session test used", rest)
						} else {
							cpu += rest.Usage.CPU
						}
					}
					return nil
				}})
			})
			run := func(code string) {
				t.Helper()
				_, err := s.Exec(context.Background(), s.Enter(), Request{OnUsage: func(r usage.Usage) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, r)
					if r.CPU > 0 {
						cpu += r.CPU
					}
				}, Submission: Submission{Code: code, Timeout: time.Minute}})
				if err != nil {
					t.Fatal(err)
				}
			}
			run("say first")
			e.run(0).spin(0.5)
			const n = 40
			for range n - 2 {
				run("say x")
			}
			run(last)
			s.Close()
			events.Close()
			mu.Lock()
			defer mu.Unlock()
			if len(told) != n {
				t.Errorf("%d executions were accounted, of %d", len(told), n)
			}
			for _, r := range told {
				if r.Wall <= 0 || r.Began.IsZero() {
					t.Errorf("%+v", r)
				}
			}
			e.run(0).mu.Lock()
			used := e.run(0).cpu
			e.run(0).mu.Unlock()
			if last != "vanish" && (cpu > used || used-cpu > time.Millisecond) {
				t.Errorf("%v of %v were accounted", cpu, used)
			}
		})
	}
}

// TestMeasureOnDemand: a short execution's outcome has its usage when asked.
func TestMeasureOnDemand(t *testing.T) {
	s := newSingle(t, &scripted{metered: true, guest: each(words)}, nil)
	for _, measure := range []bool{false, true} {
		out, err := s.Exec(context.Background(), s.Enter(), Request{Submission: Submission{Code: "say x", Timeout: time.Minute, Measure: measure}})
		if err != nil {
			t.Fatal(err)
		}
		if (out.Usage != nil) != measure || measure && (out.Usage.CPU < 0 || out.Usage.Wall <= 0 || out.Usage.PeakBytes != 2<<20) {
			t.Errorf("measure %v: %+v", measure, out.Usage)
		}
	}
}
