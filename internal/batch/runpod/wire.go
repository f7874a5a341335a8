package runpod

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// The states of a job.
const (
	inQueue    = "IN_QUEUE"
	inProgress = "IN_PROGRESS"
	running    = "RUNNING" // what the documentation also calls it
	completed  = "COMPLETED"
	failed     = "FAILED"
	cancelled  = "CANCELLED"
	timedOut   = "TIMED_OUT"
)

func final(status string) bool {
	switch status {
	case completed, failed, cancelled, timedOut:
		return true
	}
	return false
}

// number takes whatever a service calls a number; what is none is 0.
type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(b []byte) error {
	s := string(b)
	if u, err := strconv.Unquote(s); err == nil {
		s = u
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > 1e12 {
		f = 0
	}
	*n = number(f)
	return nil
}

func (n number) millis() time.Duration {
	return time.Duration(max(n, 0) * number(time.Millisecond))
}

// word decodes a string; anything else becomes empty.
type word string

// UnmarshalJSON implements json.Unmarshaler.
func (w *word) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*w = word(s)
	}
	return nil
}

// jobStatus is what run, runsync and status answer.
type jobStatus struct {
	ID            word            `json:"id"`
	Status        word            `json:"status"`
	DelayTime     number          `json:"delayTime"`
	ExecutionTime number          `json:"executionTime"`
	Retries       number          `json:"retries"`
	WorkerID      word            `json:"workerId"`
	Output        json.RawMessage `json:"output"`
	Error         json.RawMessage `json:"error"`
}

// streamed is what stream answers.
type streamed struct {
	Status word `json:"status"`
	Stream []struct {
		Output json.RawMessage `json:"output"`
	} `json:"stream"`
}

// health is what health answers.
type health struct {
	Jobs struct {
		InQueue    number `json:"inQueue"`
		InProgress number `json:"inProgress"`
		Completed  number `json:"completed"`
		Failed     number `json:"failed"`
		Retried    number `json:"retried"`
	} `json:"jobs"`
	Workers struct {
		Idle         number `json:"idle"`
		Running      number `json:"running"`
		Ready        number `json:"ready"`
		Initializing number `json:"initializing"`
		Throttled    number `json:"throttled"`
		Unhealthy    number `json:"unhealthy"`
	} `json:"workers"`
}

// alive: some worker takes jobs.
func (h *health) alive() bool {
	w := h.Workers
	return w.Idle+w.Running+w.Ready > 0
}

// listedJob is a job of ours among those that the service lists.
type listedJob struct {
	id, status, run, owner string
	sent                   time.Time
}

// listed finds our jobs in whatever form requests answers: every object that
// has an id and, as input, one of our requests. The form is not published.
func listed(answer []byte) (jobs []listedJob) {
	var v any
	if json.Unmarshal(answer, &v) != nil {
		return nil
	}
	var walk func(v any, depth int)
	walk = func(v any, depth int) {
		if depth > 8 {
			return
		}
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e, depth+1)
			}
		case map[string]any:
			id, _ := v["id"].(string)
			input, _ := v["input"].(map[string]any)
			if inner, ok := input["input"].(map[string]any); ok {
				input = inner
			}
			ours, _ := input["sallyport"].(map[string]any)
			run, _ := ours["run"].(string)
			if validJob().MatchString(id) && run != "" {
				j := listedJob{id: id, run: run}
				j.status, _ = v["status"].(string)
				j.owner, _ = ours["owner"].(string)
				if ms, ok := ours["sentMs"].(float64); ok && ms > 0 && ms < 1e15 {
					j.sent = time.UnixMilli(int64(ms))
				}
				jobs = append(jobs, j)
				return
			}
			for _, e := range v {
				walk(e, depth+1)
			}
		}
	}
	walk(v, 0)
	return jobs
}
