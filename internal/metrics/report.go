package metrics

import (
	"maps"
	"slices"
)

// Report is what people read of the metrics of one or more processes.
type Report struct {
	Executions Times          `json:"executions"`
	Status     map[string]int `json:"status"` // of executions
	Waited     Times          `json:"waited"` // until the code was about to run
	Running    int            `json:"running"`
	Waiting    int            `json:"waiting"`
	Calls      Times          `json:"calls"` // to servers
	Servers    []ServerReport `json:"servers"`
	Reused     map[string]int `json:"reused"`    // results of earlier calls, by server
	Questions  map[string]int `json:"questions"` // to people, by outcome
	// TokensSaved is an estimate of the results of tools that no model had to read,
	// because code did: the bytes that code got less those that it printed, four to
	// a token.
	TokensSaved int              `json:"tokensSaved"`
	Starts      map[string]Times `json:"starts"` // of sandboxes, by cause
	Resumes     Times            `json:"resumes"`
	Suspends    Times            `json:"suspends"`
	Ended       map[string]int   `json:"ended"` // sandboxes that were lost or forgotten, by why
	Denied      map[string]int   `json:"denied"`
	Lost        map[string]int   `json:"lostEvents"` // by subscriber of the journal
}

// ServerReport is what is known of one MCP server.
type ServerReport struct {
	Name     string         `json:"name"`
	Calls    Times          `json:"calls"`
	Failures map[string]int `json:"failures,omitempty"` // by kind
	// Changes has how often it started, failed to, was stopped and died.
	Changes map[string]int `json:"changes,omitempty"`
}

// Times are durations in seconds.
type Times struct {
	Count  int     `json:"count"`
	Failed int     `json:"failed,omitempty"`
	P50    float64 `json:"p50Seconds"`
	P95    float64 `json:"p95Seconds"`
	P99    float64 `json:"p99Seconds"`
}

// timing collects a Times.
type timing struct {
	all    Histogram
	failed uint64
}

func (t *timing) add(h *Histogram, failure string) {
	if h == nil {
		return
	}
	t.all.add(h)
	if failure != "" {
		t.failed += h.Count
	}
}

func (t *timing) times() Times {
	return Times{Count: int(t.all.Count), Failed: int(t.failed), P50: t.all.Quantile(.5), P95: t.all.Quantile(.95), P99: t.all.Quantile(.99)}
}

// ReportOf joins what processes have counted. Series without the labels of their
// metric, of another version, are left out.
func ReportOf(of ...Snapshot) *Report {
	r := &Report{Status: map[string]int{}, Servers: []ServerReport{}, Starts: map[string]Times{}, Reused: map[string]int{}, Questions: map[string]int{}, Ended: map[string]int{}, Denied: map[string]int{}, Lost: map[string]int{}}
	total := func(f *family, add func(labels []string, s *Series)) {
		for _, snapshot := range of {
			for i := range snapshot[f.name] {
				if s := &snapshot[f.name][i]; len(s.Labels) == len(f.labels) {
					add(s.Labels, s)
				}
			}
		}
	}
	counted := func(f *family, into map[string]int, name func(labels []string) string) {
		total(f, func(l []string, s *Series) {
			if key := name(l); key != "" {
				into[key] += int(s.Value)
			}
		})
	}
	timed := func(f *family) Times {
		var t timing
		total(f, func(_ []string, s *Series) { t.add(s.Times, "") })
		return t.times()
	}
	var all timing
	total(serverOperations, func(l []string, s *Series) { all.add(s.Times, l[2]) })
	r.Executions, r.Waited, r.Resumes, r.Suspends = all.times(), timed(waits), timed(sessionResumes), timed(sessionSuspends)
	counted(executions, r.Status, func(l []string) string { return l[0] })
	total(running, func(_ []string, s *Series) { r.Running += int(s.Value) })
	total(waiting, func(_ []string, s *Series) { r.Waiting += int(s.Value) })
	counted(journalLost, r.Lost, func(l []string) string { return l[0] })
	counted(reused, r.Reused, func(l []string) string { return l[0] })
	counted(questions, r.Questions, func(l []string) string { return l[0] })
	saved := 0.0
	total(resultBytes, func(_ []string, s *Series) { saved += s.Value })
	total(answerBytes, func(_ []string, s *Series) { saved -= s.Value })
	r.TokensSaved = int(max(0, saved) / 4)
	counted(decisions, r.Denied, func(l []string) string {
		if l[2] == "allowed" {
			return ""
		}
		return l[0]
	})
	counted(sessionsEnded, r.Ended, func(l []string) string {
		if l[1] == "" {
			return l[0]
		}
		return l[0] + ": " + l[1]
	})
	starts := map[string]*timing{}
	total(sessionStarts, func(l []string, s *Series) { add(starts, l[0]).add(s.Times, "") })
	for cause, t := range starts {
		r.Starts[cause] = t.times()
	}
	r.servers(total)
	return r
}

// add returns the value of a key, which it makes if there is none.
func add[T any](m map[string]*T, key string) *T {
	if m[key] == nil {
		m[key] = new(T)
	}
	return m[key]
}

// servers fills in what concerns servers.
func (r *Report) servers(total func(*family, func([]string, *Series))) {
	type server struct {
		calls             timing
		failures, changes map[string]int
	}
	by := map[string]*server{}
	var calls timing
	count := func(m *map[string]int, key string, n int) {
		if *m == nil {
			*m = map[string]int{}
		}
		(*m)[key] += n
	}
	total(clientOperations, func(l []string, s *Series) {
		one := add(by, l[3])
		one.calls.add(s.Times, l[2])
		calls.add(s.Times, l[2])
		if l[2] != "" && s.Times != nil {
			count(&one.failures, l[2], int(s.Times.Count))
		}
	})
	total(servers, func(l []string, s *Series) { count(&add(by, l[0]).changes, l[1], int(s.Value)) })
	r.Calls = calls.times()
	for _, name := range slices.Sorted(maps.Keys(by)) {
		one := by[name]
		r.Servers = append(r.Servers, ServerReport{Name: name, Calls: one.calls.times(), Failures: one.failures, Changes: one.changes})
	}
}
