package metrics

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/journal"
)

// BenchmarkExecution is what counting adds to one execution: its four events, made,
// published and counted, with subscribers or without.
func BenchmarkExecution(b *testing.B) {
	for _, counting := range []bool{false, true} {
		b.Run(fmt.Sprint(counting), func(b *testing.B) {
			j, s := journal.New(slog.New(slog.DiscardHandler)), New()
			if counting {
				sub := j.Subscribe(journal.Options{Name: "metrics", Topics: Topics, Every: time.Millisecond, Handle: s.Handle})
				defer sub.Close()
			}
			b.ReportAllocs()
			for b.Loop() {
				if j.Wants(journal.Actions) {
					_ = j.Commit(b.Context(), &journal.Decided{Action: "run_code", Effect: "allow", Allowed: true})
				}
				if j.Wants(journal.Executions) {
					j.Publish(&journal.ExecutionBegan{Engine: "gvisor"})
				}
				if j.Wants(journal.Actions) {
					j.Publish(&journal.Finished{Action: "run_code", Item: "gvisor"})
				}
				if j.Wants(journal.Executions) {
					j.Publish(&journal.ExecutionEnded{Status: "success", Engine: "gvisor", Took: time.Millisecond})
				}
			}
		})
	}
}
