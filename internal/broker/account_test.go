//go:build unix

package broker

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/usage/carbon"
)

// notebook is an accountant.
type notebook struct{ nowhere bool }

func (n *notebook) Footprint(s usage.Usage) *carbon.Footprint {
	f := &carbon.Footprint{Method: "test", Energy: carbon.Energy{Joules: ptr(12.34), CPU: &carbon.Figure{Joules: 12.34}}}
	if !n.nowhere {
		f.Emissions = &carbon.Emissions{Grams: 0.5}
	}
	return f
}

func (*notebook) Ran(*runs.Record) *carbon.Footprint { return nil }

// TestAccount: every execution of code is accounted once, with what it was
// granted and how it ended; what never ran is not.
func TestAccount(t *testing.T) {
	t.Parallel()
	j := journal.New(slog.New(slog.DiscardHandler))
	var mu sync.Mutex
	var used []*journal.Used
	var rest []string
	events := j.Subscribe(journal.Options{Topics: journal.Usages | journal.Executions, Handle: func(events []journal.Event, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			switch e := e.(type) {
			case *journal.Used:
				if !e.Usage.Open {
					used = append(used, e)
				}
			case *journal.ExecutionBegan:
				rest = append(rest, "began "+e.Code+" "+e.Engine)
			case *journal.ExecutionEnded:
				rest = append(rest, "ended "+e.Status)
			}
		}
		return nil
	}})
	b, _ := newBroker(t, func(p *parts) { p.Journal = j })
	want(t, run(t, b, "print(1)"), Success, 0, "1")
	want(t, run(t, b, "print(2)", "math"), Success, 0, "2")
	want(t, run(t, b, "1/0"), Failed, 1, "")
	r := b.Execute(t.Context(), Request{Principal: user, Session: "other", RequestID: "id-3", Submission: Submission{Code: "print(3)", Script: true, Filename: "x.py"}})
	want(t, r, Success, 0, "3")
	run(t, b, "print(4)", "broken")
	run(t, b, " ")
	b.Close()

	events.Close()
	if len(used) != 4 {
		t.Fatalf("%d executions were accounted: %+v", len(used), used)
	}
	byCode := map[string]*journal.Used{}
	for _, e := range used {
		if e.Execution == "" || e.Usage.Wall <= 0 || e.Usage.Began.IsZero() {
			t.Errorf("%+v", e)
		}
		byCode[e.Code] = e
	}
	if e := byCode["print(2)"]; !slices.Equal(e.Servers, []string{"math"}) || e.Session != DefaultSession || e.Failed || e.File != "" {
		t.Errorf("%+v", e)
	}
	if e := byCode["print(3)"]; e.Session != "other" || e.File != "x.py" || e.Execution != "id-3" {
		t.Errorf("%+v", e)
	}
	if e := byCode["1/0"]; !e.Failed {
		t.Errorf("%+v", e)
	}
	if got, want := strings.Join(rest, ", "), "began print(1) fake, ended success, began print(2) fake, ended success, began 1/0 fake, ended error, "+
		"began print(3) fake, ended success, began print(4) fake, ended error, ended validation_error"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestUsageInResults: in full where it was measured, in compact forms only
// where that is asked for.
func TestUsageInResults(t *testing.T) {
	t.Parallel()
	for _, show := range []bool{false, true} {
		book := &notebook{}
		b, _ := newBroker(t, func(p *parts) { p.Accountant = book })
		b.as("c").ShowUsage, b.as("other").ShowUsage = show, !show // which is another matter
		r := b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "print(1)"}})
		if r.Usage != nil && !show && r.DurationMs < 1000 { // a slow machine makes it a long one
			t.Errorf("a short execution was measured: %+v", r.Usage)
		}
		r = b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "print(1)", Measure: true}})
		if r.Usage == nil {
			t.Fatal("an execution was not measured")
		}
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"method":"test"`, `"energy":{"joules":12.34,`, `"cpu":{`, `"emissions":{"grams":0.5`} {
			if !strings.Contains(string(raw), part) {
				t.Errorf("no %s in %s", part, raw)
			}
		}
		compact, _ := json.Marshal(r.Compact())
		if got := strings.Contains(string(compact), "12.34"); got != show || strings.Contains(string(compact), `"cpu":`) {
			t.Errorf("show %v: %s", show, compact)
		}
		if got := strings.Contains(r.Text(), "12 J, 500 mg CO2e"); got != show {
			t.Errorf("show %v: %s", show, r.Text())
		}
		book.nowhere = true
		r = b.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "print(1)", Measure: true}})
		if raw, _ := json.Marshal(r); !strings.Contains(string(raw), `"emissions":null`) {
			t.Errorf("%s", raw)
		}
		if show && !strings.Contains(r.Text(), "12 J, CO2e unknown") {
			t.Errorf("%s", r.Text())
		}
	}
}

func ptr(f float64) *float64 { return &f }

// TestUnknownUsage: what is not known is not told as nothing.
func TestUnknownUsage(t *testing.T) {
	t.Parallel()
	for want, u := range map[string]*Usage{
		"CPU time unknown":                 {},
		"CPU time unknown, energy unknown": {Footprint: &carbon.Footprint{Energy: carbon.Energy{Missing: []string{"cpu", "memory"}}}},
		"2 s CPU, 8 J, 1 mg CO2e (without memory: unknown)": {CPUSeconds: ptr(2), Footprint: &carbon.Footprint{
			Energy: carbon.Energy{Joules: ptr(8), Missing: []string{"memory"}}, Emissions: &carbon.Emissions{Grams: 0.001}}},
	} {
		if got := u.line(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	raw, err := json.Marshal((&Broker{}).usage(usage.Usage{CPU: -1, ByteSeconds: -1, PeakBytes: -1}))
	if want := `{"cpuSeconds":null}`; err != nil || string(raw) != want {
		t.Errorf("%v, %s; want %s", err, raw, want)
	}
}

func TestBrief(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{0: "0", 0.0123: "0.012", 1.26: "1.3", 12.34: "12", 99.4: "99", 99.7: "100", 1234.6: "1235"} {
		if got := brief(f); got != want {
			t.Errorf("%v is %s, want %s", f, got, want)
		}
	}
}
