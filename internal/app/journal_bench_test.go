package app

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/authz/audit"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/metrics"
	"github.com/sallyport/sallyport/internal/redact"
	"github.com/sallyport/sallyport/internal/store"
)

// BenchmarkJournal is what the journal adds to one execution: its four events, with
// the subscribers that there always are, until all is counted and on disk. What the
// execution itself waits for is reported apart.
func BenchmarkJournal(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	for _, subscribed := range []string{"none", "metrics", "metrics and audit"} {
		b.Run(subscribed, func(b *testing.B) {
			j, counts, flush := journal.New(log), metrics.New(), func() {}
			if subscribed != "none" {
				s := j.Subscribe(journal.Options{Name: "metrics", Topics: metrics.Topics, Every: time.Second, Handle: counts.Handle})
				defer s.Close()
			}
			if subscribed == "metrics and audit" {
				l := audit.Open(audit.Config{Dir: store.At(b.TempDir()).Area(store.Audit), Code: "hash", Arguments: "hash", RotateSize: 1 << 30, RotateAge: time.Hour, Secrets: &redact.Set{}, Log: log}, j)
				defer l.Close()
				flush = func() {
					if err := l.Flush(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			}
			origin := journal.Origin{Time: time.Now(), Owner: "local", Client: "a client", Session: "default", Execution: "zrdjvsk56jmo"}
			code := 0
			var waited time.Duration
			n := 0
			for b.Loop() {
				began := time.Now()
				if j.Wants(journal.Actions) {
					_ = j.Commit(b.Context(), &journal.Decided{Origin: origin, Action: "run_code", Item: "gvisor", Effect: "allow", Allowed: true})
				}
				if j.Wants(journal.Executions) {
					j.Publish(&journal.ExecutionBegan{Origin: origin, Engine: "gvisor", Code: "print(1+1)"})
				}
				if j.Wants(journal.Actions) {
					j.Publish(&journal.Finished{Origin: origin, Action: "run_code", Item: "gvisor"})
				}
				if j.Wants(journal.Executions) {
					j.Publish(&journal.ExecutionEnded{Origin: origin, Status: "success", ExitCode: &code, Engine: "gvisor", Took: time.Millisecond, Stdout: 2})
				}
				waited += time.Since(began)
				if n++; n%1000 == 0 {
					flush() // half a second of a busy hub
				}
			}
			b.ReportMetric(float64(waited.Nanoseconds())/float64(n), "ns-waited/op")
		})
	}
}
