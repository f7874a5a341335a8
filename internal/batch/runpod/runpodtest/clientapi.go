package runpodtest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

var clientOps = map[string]func(*Server, *request) reply{
	"run": (*Server).run, "runsync": (*Server).run, "status": (*Server).status, "status-sync": (*Server).statusSync,
	"stream": (*Server).stream, "cancel": (*Server).cancel, "retry": (*Server).retry,
	"purge-queue": (*Server).purge, "health": (*Server).health, "requests": (*Server).requests,
}

// newID is a job's ID as RunPod makes them.
func newID(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%s%x-%x-%x-%x-%x-u1", prefix, b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (s *Server) run(r *request) reply {
	sync := r.op == "runsync"
	limit := runPayload
	if sync {
		limit = runsyncPayload
	}
	switch {
	case r.Method != "POST":
		return failure(405, "method not allowed")
	case len(r.body) > limit:
		return failure(413, "payload of %d bytes is over the limit", len(r.body))
	}
	var in struct {
		Input    json.RawMessage `json:"input"`
		Webhook  json.RawMessage `json:"webhook"`
		Policy   policy          `json:"policy"`
		S3Config json.RawMessage `json:"s3Config"`
	}
	if err := decode(r.body, &in); err != nil {
		return failure(400, "invalid JSON: %v", err)
	}
	if len(in.Input) == 0 || string(in.Input) == "null" {
		return failure(400, "input is missing")
	}
	const week = int64(7 * 24 * time.Hour / time.Millisecond)
	p := in.Policy
	if p.ExecutionTimeout != 0 && (p.ExecutionTimeout < 5000 || p.ExecutionTimeout > week) {
		return failure(400, "policy.executionTimeout must be between 5000 and %d", week)
	}
	if p.TTL != 0 && (p.TTL < 10000 || p.TTL > week) {
		return failure(400, "policy.ttl must be between 10000 and %d", week)
	}
	now := s.clock.Now()
	prefix := ""
	if sync {
		prefix = "sync-"
	}
	j := &jobState{id: newID(prefix), sync: sync, status: InQueue, input: in.Input, webhook: in.Webhook, s3: in.S3Config,
		timeout: defaultTimeout, created: now, expires: now.Add(defaultTTL)}
	if p.ExecutionTimeout != 0 {
		j.timeout = time.Duration(p.ExecutionTimeout) * time.Millisecond
	}
	if p.TTL != 0 {
		j.expires = now.Add(time.Duration(p.TTL) * time.Millisecond)
	}
	r.ep.jobs[j.id], r.ep.active[j.id] = j, j
	r.ep.queue = append(r.ep.queue, j)
	s.expect(j.expires)
	s.wake()
	if sync {
		s.await(r.Context(), r.millis("wait", time.Second, 5*time.Minute, 90*time.Second), j.final)
		return answer(200, s.describe(j))
	}
	return answer(200, map[string]string{"id": j.id, "status": j.status})
}

// describe is a job as status tells it.
func (s *Server) describe(j *jobState) map[string]any {
	m := map[string]any{"id": j.id, "status": j.status}
	if j.status != InQueue {
		m["delayTime"] = j.started.Sub(j.created).Milliseconds()
		if j.worker != "" {
			m["workerId"] = j.worker
		}
	}
	if j.final() {
		m["executionTime"] = j.finished.Sub(j.started).Milliseconds()
	}
	if j.output != nil {
		m["output"] = j.output
	}
	if j.err != nil {
		m["error"] = j.err
	}
	if n := len(j.deliveries); n > 1 {
		m["retries"] = n - 1
	}
	return m
}

func (s *Server) status(r *request) reply {
	j := s.lookup(r)
	if j == nil {
		return failure(404, "job not found")
	}
	return answer(200, s.describe(j))
}

func (s *Server) statusSync(r *request) reply {
	j := s.lookup(r)
	if j == nil {
		return failure(404, "job not found")
	}
	s.await(r.Context(), r.millis("wait", time.Second, 5*time.Minute, 90*time.Second), j.final)
	return answer(200, s.describe(j))
}

func (s *Server) stream(r *request) reply {
	j := s.lookup(r)
	if j == nil {
		return failure(404, "job not found")
	}
	if wait := r.millis("wait", 0, 5*time.Minute, 0); wait > 0 {
		s.await(r.Context(), wait, func() bool { return j.final() || len(j.chunks) > 0 })
	}
	chunks := j.chunks
	if chunks == nil {
		chunks = []json.RawMessage{}
	}
	j.chunks = nil
	return answer(200, map[string]any{"status": j.status, "stream": chunks})
}

func (s *Server) cancel(r *request) reply {
	j := s.lookup(r)
	switch {
	case r.Method != "POST":
		return failure(405, "method not allowed")
	case j == nil:
		return failure(404, "job not found")
	case !j.final():
		s.finish(r.ep, j, Cancelled)
	}
	return answer(200, map[string]string{"id": j.id, "status": j.status})
}

func (s *Server) retry(r *request) reply {
	j := s.lookup(r)
	switch {
	case r.Method != "POST":
		return failure(405, "method not allowed")
	case j == nil:
		return failure(404, "job not found")
	case j.status != Failed && j.status != TimedOut:
		return failure(400, "only failed and timed-out jobs can be retried")
	}
	j.status, j.output, j.err, j.worker, j.chunks = InQueue, nil, nil, "", nil
	r.ep.active[j.id] = j
	r.ep.queue = append(r.ep.queue, j)
	s.expect(j.expires)
	r.ep.counts.retried++
	s.wake()
	return answer(200, map[string]string{"id": j.id, "status": j.status})
}

func (s *Server) purge(r *request) reply {
	if r.Method != "POST" {
		return failure(405, "method not allowed")
	}
	n := 0
	for _, j := range slices.Clone(r.ep.queue) {
		if j.status == InQueue {
			s.finish(r.ep, j, Cancelled)
			n++
		}
	}
	return answer(200, map[string]any{"removed": n, "status": "completed"})
}

func (s *Server) health(r *request) reply {
	inQueue, inProgress := 0, 0
	for _, j := range r.ep.active {
		if j.status == InQueue {
			inQueue++
		} else {
			inProgress++
		}
	}
	sum := s.summary(r.ep)
	return answer(200, map[string]any{
		"jobs": map[string]int{"completed": r.ep.counts.completed, "failed": r.ep.counts.failed,
			"inProgress": inProgress, "inQueue": inQueue, "retried": r.ep.counts.retried},
		"workers": map[string]int{"idle": sum["idle"], "running": sum["running"], "initializing": sum["initializing"],
			"ready": sum["idle"], "throttled": sum["throttled"], "unhealthy": sum["unhealthy"]},
	})
}

// requests lists jobs. Only its rate limit is published; the form is ours.
func (s *Server) requests(r *request) reply {
	if s.opts.NoRequests {
		return failure(404, "not found")
	}
	list := []map[string]any{}
	for _, j := range r.ep.jobs {
		d := s.describe(j)
		d["input"] = j.input
		list = append(list, d)
	}
	return answer(200, map[string]any{"requests": list})
}
