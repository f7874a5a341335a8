package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"log/slog"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sallyport/sallyport/internal/journal"
)

const ms = time.Millisecond

// events are an hour of a Sallyport.
func events() []journal.Event {
	var out []journal.Event
	for i := range 100 {
		out = append(out,
			&journal.ExecutionBegan{Waited: ms},
			&journal.ExecutionEnded{Status: "success", Engine: "gvisor", Took: time.Duration(i+1) * 10 * ms},
			&journal.Decided{Action: "call_tool", Server: "web", Item: "get", Effect: "allow", Allowed: true},
			&journal.Finished{Action: "call_tool", Server: "web", Item: "get", Listed: true, Took: 20 * ms},
		)
	}
	return append(out,
		&journal.ExecutionEnded{Status: "error", Engine: "gvisor", Took: ms},
		&journal.ExecutionEnded{Status: "validation_error", Engine: "invented", Took: ms},
		&journal.Decided{Action: "call_tool", Effect: "ask"},
		&journal.Answered{Allowed: true, By: "someone"},
		&journal.Answered{By: "someone"},
		&journal.Answered{},
		&journal.Finished{Action: "call_tool", Server: "web", Item: "get", Listed: true, Took: 20 * ms, Bytes: 5000},
		&journal.ExecutionEnded{Status: "success", Engine: "gvisor", Took: 500 * ms, Stdout: 900, Stderr: 100},
		&journal.Finished{Action: "call_tool", Server: "web", Item: "invented", Failure: "not_found", Took: ms},
		&journal.Finished{Action: "call_tool", Server: "web", Item: `a"b\c`, Listed: true, Failure: "tool_error", Took: ms},
		&journal.Finished{Action: "list_server", Server: "web", Took: ms},
		&journal.Finished{Action: "call_tool", Server: "web", Item: "get", Listed: true, Cached: true},
		&journal.Finished{Action: "run_code", Item: "gvisor", Took: ms},
		&journal.SessionChanged{To: journal.SessionStarted, Cause: "cold", Took: 300 * ms},
		&journal.SessionChanged{To: journal.SessionStarted, Cause: "pool", Took: ms},
		&journal.SessionChanged{To: journal.SessionResumed, Took: 40 * ms},
		&journal.SessionChanged{To: journal.SessionSuspended, Took: 50 * ms},
		&journal.SessionChanged{To: journal.SessionLost, Cause: "the sandbox engine died: run 1"},
		&journal.SessionChanged{To: journal.SessionLost, Cause: "the sandbox engine died: run 2"},
		&journal.SessionChanged{To: journal.SessionForgotten},
		&journal.ServerChanged{Server: "web", To: journal.ServerStarted, Took: time.Second},
		&journal.ServerChanged{Server: "web", To: journal.ServerDied},
		&journal.Used{},
	)
}

func counted(t *testing.T, events []journal.Event) Snapshot {
	t.Helper()
	s := New()
	if err := s.Handle(events, 0); err != nil {
		t.Fatal(err)
	}
	return s.Snapshot(Now{Running: 2, Waiting: 1, Lost: map[string]uint64{"audit": 7}})
}

// near reports whether a quantile is right, as far as buckets can tell.
func near(got, want float64) bool { return math.Abs(got-want) <= 0.15*want }

func TestReport(t *testing.T) {
	data, err := json.Marshal(counted(t, events()))
	if err != nil {
		t.Fatal(err)
	}
	var there Snapshot // from another process
	if err := json.Unmarshal(data, &there); err != nil {
		t.Fatal(err)
	}
	r := ReportOf(counted(t, events()), there, Snapshot{"unknown": {{}}, running.name: {{Labels: []string{"of another version"}}}})
	for _, tt := range []struct {
		what      string
		got, want any
	}{
		{"executions", []int{r.Executions.Count, r.Executions.Failed}, []int{206, 4}},
		{"status", r.Status, map[string]int{"success": 202, "error": 2, "validation_error": 2}},
		{"now", []int{r.Running, r.Waiting}, []int{4, 2}},
		{"calls", []int{r.Calls.Count, r.Calls.Failed}, []int{208, 4}},
		{"waited", r.Waited.Count, 200},
		{"starts", []int{r.Starts["cold"].Count, r.Starts["pool"].Count, len(r.Starts)}, []int{2, 2, 2}},
		{"resumes", []int{r.Resumes.Count, r.Suspends.Count}, []int{2, 2}},
		{"ended", r.Ended, map[string]int{"lost: the sandbox engine died": 4, "forgotten": 2}},
		{"reused", r.Reused, map[string]int{"web": 2}},
		{"questions", r.Questions, map[string]int{"allowed": 2, "refused": 2, "unanswered": 2}},
		{"tokens saved", r.TokensSaved, 2000},
		{"denied", r.Denied, map[string]int{"call_tool": 2}},
		{"lost events", r.Lost, map[string]int{"audit": 14}},
		{"servers", len(r.Servers), 1},
		{"failures", r.Servers[0].Failures, map[string]int{"not_found": 2, "tool_error": 2}},
		{"changes", r.Servers[0].Changes, map[string]int{"started": 2, "died": 2}},
	} {
		if got, want := fmt.Sprint(tt.got), fmt.Sprint(tt.want); got != want {
			t.Errorf("%s: got %s, want %s", tt.what, got, want)
		}
	}
	for _, tt := range []struct{ got, want float64 }{
		{r.Executions.P50, .49}, {r.Executions.P95, .95}, {r.Executions.P99, .99}, {r.Calls.P50, .02}, {r.Starts["cold"].P50, .3}, {r.Resumes.P99, .04},
	} {
		if !near(tt.got, tt.want) {
			t.Errorf("got a quantile of %g, want about %g", tt.got, tt.want)
		}
	}
}

// TestQuantile: the extremes, and what is beyond all buckets.
func TestQuantile(t *testing.T) {
	var h Histogram
	if got := h.Quantile(.99); got != 0 {
		t.Errorf("empty: got %g, want 0", got)
	}
	h.observe(-time.Second)
	h.observe(0)
	if got := h.Quantile(1); got > 1e-5 {
		t.Errorf("nothing: got %g, want at most 10 µs", got)
	}
	h.observe(24 * time.Hour)
	if got, want := h.Quantile(1), bounds[len(bounds)-1]; got != want {
		t.Errorf("a day: got %g, want %g", got, want)
	}
	h.add(&Histogram{Count: 1, Buckets: make([]uint64, 1000)}) // of another version
	if got, want := len(h.Buckets), len(bounds)+1; got != want {
		t.Errorf("got %d buckets, want %d", got, want)
	}
	for _, b := range published {
		if !contains(b) {
			t.Errorf("%g is published, and no bound of a bucket", b)
		}
	}
}

func contains(bound float64) bool {
	for _, b := range bounds {
		if b == bound {
			return true
		}
	}
	return false
}

// TestPrometheus: the official parser reads what is written.
func TestPrometheus(t *testing.T) {
	var b strings.Builder
	if err := counted(t, events()).Write(&b); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	got, err := parser.TextToMetricFamilies(strings.NewReader(b.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, &b)
	}
	if len(got) != len(families) {
		t.Errorf("got %d metrics, want %d:\n%s", len(got), len(families), &b)
	}
	for _, f := range families {
		if kind := strings.ToLower(got[f.name].GetType().String()); kind != f.kind {
			t.Errorf("%s: got a %s, want a %s", f.name, kind, f.kind)
		}
	}
	find := func(name string, labels ...string) *dto.Metric {
		for _, m := range got[name].GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if fmt.Sprint(values) == fmt.Sprint(labels) {
				return m
			}
		}
		t.Fatalf("%s has nothing for %q:\n%s", name, labels, &b)
		return nil
	}
	h := find(serverOperations.name, "tools/call", "run_python", "").GetHistogram()
	if h.GetSampleCount() != 101 || !near(h.GetSampleSum(), 51) {
		t.Errorf("got %d executions of %g s, want 101 of 51 s", h.GetSampleCount(), h.GetSampleSum())
	}
	for _, bucket := range h.GetBucket() {
		if bucket.GetUpperBound() == .5 && bucket.GetCumulativeCount() != 51 {
			t.Errorf("up to 0.5 s: got %d, want 51", bucket.GetCumulativeCount())
		}
	}
	find(clientOperations.name, "tools/call", `a"b\c`, "tool_error", "web")
	find(clientOperations.name, "tools/call", "other", "not_found", "web")
	if got := find(executions.name, "validation_error", "").GetCounter().GetValue(); got != 1 {
		t.Errorf("got %g requests that were not valid, want 1", got)
	}
	if strings.Contains(b.String(), "invented") {
		t.Errorf("a name that code invented is published:\n%s", &b)
	}
}

// TestSeries: a server that invents names fills no memory.
func TestSeries(t *testing.T) {
	var many []journal.Event
	for i := range 3 * maxSeries {
		many = append(many, &journal.Finished{Action: "call_tool", Server: "web", Item: fmt.Sprint(i), Listed: true})
	}
	got := counted(t, many)[clientOperations.name]
	if len(got) != maxSeries+1 {
		t.Errorf("got %d series, want %d", len(got), maxSeries+1)
	}
	if r := ReportOf(Snapshot{clientOperations.name: got}); r.Calls.Count != 3*maxSeries {
		t.Errorf("got %d calls, want %d", r.Calls.Count, 3*maxSeries)
	}
}

// TestSubscribed: what is published is counted within the second, and at once for
// who asks.
func TestSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, s := journal.New(slog.New(slog.DiscardHandler)), New()
		sub := j.Subscribe(journal.Options{Name: "metrics", Topics: Topics, Every: time.Second, Handle: s.Handle})
		defer sub.Close()
		began := time.Now()
		j.Publish(&journal.ExecutionBegan{Origin: journal.Origin{Time: began}, Waited: 2 * time.Second})
		time.Sleep(3 * time.Second)
		j.Publish(&journal.ExecutionEnded{Status: "success", Took: time.Since(began)})
		if err := sub.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := ReportOf(s.Snapshot(Now{}))
		if r.Executions.Count != 1 || !near(r.Executions.P50, 3) || !near(r.Waited.P99, 2) {
			t.Errorf("got %+v and %+v, want one of 3 s that waited 2 s", r.Executions, r.Waited)
		}
	})
}
