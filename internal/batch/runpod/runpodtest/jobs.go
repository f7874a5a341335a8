package runpodtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The states of a job.
const (
	InQueue    = "IN_QUEUE"
	InProgress = "IN_PROGRESS"
	Completed  = "COMPLETED"
	Failed     = "FAILED"
	Cancelled  = "CANCELLED"
	TimedOut   = "TIMED_OUT"
)

type policy struct {
	ExecutionTimeout int64 `json:"executionTimeout,omitempty"`
	TTL              int64 `json:"ttl,omitempty"`
	LowPriority      bool  `json:"lowPriority,omitempty"`
}

type jobState struct {
	id       string
	sync     bool
	status   string
	input    json.RawMessage
	webhook  json.RawMessage
	s3       json.RawMessage
	timeout  time.Duration
	expires  time.Time // by its ttl
	created  time.Time
	started  time.Time
	finished time.Time
	worker   string
	output   json.RawMessage
	err      json.RawMessage
	chunks   []json.RawMessage

	deliveries []string // the workers that it was given to
	results    int      // how many results came
	twice      bool     // to be given to one more while it runs
}

func (j *jobState) final() bool { return j.status != InQueue && j.status != InProgress }

type endpoint struct {
	id      string
	jobs    map[string]*jobState
	queue   []*jobState
	active  map[string]*jobState // not final
	workers map[string]*workerState
	counts  struct{ completed, failed, retried int }
	fleet   []WorkerRow // set by the test, besides those that call
	spec    *endpointSpec
}

func newEndpoint(id string) *endpoint {
	return &endpoint{id: id, jobs: map[string]*jobState{}, active: map[string]*jobState{}, workers: map[string]*workerState{}}
}

// workerState is a worker that has called.
type workerState struct {
	id      string
	gpu     string
	seen    time.Time
	since   time.Time
	holding map[string]*jobState
	stop    []string // for its next job-stop
	dead    bool     // killed: nothing it says counts
	sick    string   // why it called itself unhealthy
	pings   int
	resets  int
}

// expect says that time has something to do then, or earlier than is known.
func (s *Server) expect(at time.Time) {
	if s.due.IsZero() || at.Before(s.due) {
		s.due = at
	}
}

// tick does what time brings. The mutex is held.
func (s *Server) tick() {
	now := s.clock.Now()
	if s.due.IsZero() || now.Before(s.due) {
		return
	}
	defer func() { s.due = s.deadline() }()
	for _, ep := range s.endpoints {
		for _, j := range ep.active {
			switch {
			case !now.Before(j.expires):
				s.drop(ep, j)
				delete(ep.jobs, j.id)
			case j.status == InProgress && !now.Before(j.started.Add(j.timeout)):
				s.finish(ep, j, TimedOut)
				j.err = text("job timed out after %d ms", j.timeout.Milliseconds())
			case j.status == InProgress && ep.workers[j.worker] != nil && now.Sub(ep.workers[j.worker].seen) >= s.opts.Silence:
				s.requeue(ep, j)
			}
		}
	}
}

// deadline is when tick has something to do next. The mutex is held.
func (s *Server) deadline() (next time.Time) {
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, ep := range s.endpoints {
		for _, j := range ep.active {
			sooner(j.expires)
			if j.status == InProgress {
				sooner(j.started.Add(j.timeout))
				if w := ep.workers[j.worker]; w != nil {
					sooner(w.seen.Add(s.opts.Silence))
				}
			}
		}
	}
	return next
}

// requeue gives a job whose worker is gone to the next, a few times.
func (s *Server) requeue(ep *endpoint, j *jobState) {
	if w := ep.workers[j.worker]; w != nil {
		delete(w.holding, j.id)
	}
	if len(j.deliveries) >= maxDeliveries {
		s.finish(ep, j, Failed)
		j.err = text("job failed after %d attempts: worker exited", len(j.deliveries))
		return
	}
	j.status, j.worker, j.output = InQueue, "", nil
	ep.counts.retried++
	ep.queue = append(ep.queue, j)
	s.wake()
}

// finish ends a job; its worker must stop.
func (s *Server) finish(ep *endpoint, j *jobState, status string) {
	j.finished = s.clock.Now()
	if j.status == InQueue {
		j.started = j.finished
	}
	s.drop(ep, j)
	j.status, j.output = status, nil
	switch status {
	case Completed:
		ep.counts.completed++
	case Failed, TimedOut:
		ep.counts.failed++
	}
}

func (s *Server) drop(ep *endpoint, j *jobState) {
	delete(ep.active, j.id)
	ep.queue = slices.DeleteFunc(ep.queue, func(q *jobState) bool { return q == j })
	for _, id := range j.deliveries {
		if w := ep.workers[id]; w != nil && w.holding[j.id] != nil {
			delete(w.holding, j.id)
			w.stop = append(w.stop, j.id)
		}
	}
	s.wake()
}

// lookup finds a job whose result is still kept.
func (s *Server) lookup(r *request) *jobState {
	if len(r.args) != 1 {
		return nil
	}
	j := r.ep.jobs[r.args[0]]
	if j == nil {
		return nil
	}
	keep := keepAsync
	if j.sync {
		keep = keepSync
	}
	if j.final() && s.clock.Now().Sub(j.finished) >= keep {
		delete(r.ep.jobs, j.id)
		return nil
	}
	return j
}

func text(format string, args ...any) json.RawMessage {
	b, err := json.Marshal(fmt.Sprintf(format, args...))
	if err != nil {
		panic(err)
	}
	return b
}

// JobInfo is what a test sees of a job.
type JobInfo struct {
	ID         string
	Status     string
	Input      json.RawMessage
	Timeout    time.Duration
	TTL        time.Duration
	Sync       bool
	Deliveries []string
	Results    int
}

// Jobs of an endpoint, in the order of their submission.
func (s *Server) Jobs(ep string) []JobInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tick()
	e := s.endpoints[ep]
	if e == nil {
		return nil
	}
	var out []JobInfo
	for _, j := range e.jobs {
		out = append(out, JobInfo{ID: j.id, Status: j.status, Input: j.input, Timeout: j.timeout,
			TTL: j.expires.Sub(j.created), Sync: j.sync, Deliveries: slices.Clone(j.deliveries), Results: j.results})
	}
	order := func(i JobInfo) time.Time { return e.jobs[i.ID].created }
	slices.SortFunc(out, func(a, b JobInfo) int { return order(a).Compare(order(b)) })
	return out
}

// Forget ends the retention of a job's result.
func (s *Server) Forget(ep, job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpoints[ep]; e != nil && e.jobs[job] != nil {
		s.drop(e, e.jobs[job])
		delete(e.jobs, job)
	}
}

// DeliverTwice gives a job that runs to one more worker while the first goes
// on, as RunPod does when it takes a worker for dead that is not.
func (s *Server) DeliverTwice(ep, job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpoints[ep]; e != nil {
		if j := e.active[job]; j != nil && j.status == InProgress && !j.twice {
			j.twice = true
			e.counts.retried++
			e.queue = append(e.queue, j)
			s.wake()
		}
	}
}

// Kill ends a worker: its jobs go to others, and what it says from now on is
// answered as for an unknown caller.
func (s *Server) Kill(ep, worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endpoints[ep]
	if e == nil || e.workers[worker] == nil {
		return
	}
	w := e.workers[worker]
	w.dead = true
	for _, j := range w.holding {
		if j.worker == worker && j.status == InProgress {
			s.requeue(e, j)
		}
	}
	w.holding = map[string]*jobState{}
	s.wake()
}
