package runpodtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

var workerOps = map[string]func(*Server, *request) reply{
	"job-take": (*Server).take, "job-take-batch": (*Server).take, "job-stop": (*Server).stopList,
	"job-done": (*Server).done, "job-stream": (*Server).chunk, "ping": (*Server).ping,
}

// WorkerEnv is what RunPod puts into a worker's environment, for a Server
// that is reached under base ("http://127.0.0.1:1234").
func (s *Server) WorkerEnv(base, ep, worker string) []string {
	u := base + "/v2/" + ep
	return []string{
		"RUNPOD_WEBHOOK_GET_JOB=" + u + "/job-take/$ID?gpu=NVIDIA+Test",
		"RUNPOD_WEBHOOK_POST_OUTPUT=" + u + "/job-done/$RUNPOD_POD_ID/$ID?gpu=NVIDIA+Test",
		"RUNPOD_WEBHOOK_POST_STREAM=" + u + "/job-stream/$RUNPOD_POD_ID/$ID?gpu=NVIDIA+Test",
		"RUNPOD_WEBHOOK_PING=" + u + "/ping/$RUNPOD_POD_ID",
		"RUNPOD_PING_INTERVAL=10000",
		"RUNPOD_AI_API_KEY=" + s.opts.WorkerKey,
		"RUNPOD_POD_ID=" + worker,
		"RUNPOD_POD_HOSTNAME=" + worker + "-host",
		"RUNPOD_ENDPOINT_ID=" + ep,
		"RUNPOD_DC_ID=EU-RO-1",
	}
}

// caller is the worker that a request comes from, or nil when it was killed.
func (s *Server) caller(r *request) *workerState {
	if len(r.args) == 0 || r.args[0] == "" {
		return nil
	}
	id, now := r.args[0], s.clock.Now()
	w := r.ep.workers[id]
	if w == nil {
		w = &workerState{id: id, since: now, holding: map[string]*jobState{}}
		r.ep.workers[id] = w
	}
	if w.dead {
		return nil
	}
	w.seen = now
	if gpu := r.URL.Query().Get("gpu"); gpu != "" {
		w.gpu = gpu
	}
	return w
}

// take gives out the next job, or in a batch the next few. What is held when
// none comes is a choice: RunPod does not publish it.
func (s *Server) take(r *request) reply {
	w := s.caller(r)
	if w == nil || r.Method != "GET" || len(r.args) != 1 {
		return failure(404, "no such worker")
	}
	n := 1
	if r.op == "job-take-batch" {
		n, _ = strconv.Atoi(r.URL.Query().Get("batch_size"))
		n = min(max(n, 1), 100)
	}
	next := func() int {
		return slices.IndexFunc(r.ep.queue, func(j *jobState) bool { return w.holding[j.id] == nil || j.twice })
	}
	s.await(r.Context(), s.opts.TakeWait, func() bool { return w.dead || next() >= 0 })
	if w.dead {
		return failure(404, "no such worker")
	}
	if r.Context().Err() != nil {
		return empty(204)
	}
	w.seen = s.clock.Now()
	var jobs []map[string]any
	for len(jobs) < n {
		i := next()
		if i < 0 {
			break
		}
		j := r.ep.queue[i]
		r.ep.queue = slices.Delete(r.ep.queue, i, i+1)
		j.status, j.worker, j.twice = InProgress, w.id, false
		j.started = s.clock.Now()
		s.expect(j.started.Add(min(j.timeout, s.opts.Silence)))
		j.deliveries = append(j.deliveries, w.id)
		w.holding[j.id] = j
		m := map[string]any{"id": j.id, "input": j.input}
		if j.webhook != nil {
			m["webhook"] = j.webhook
		}
		if j.s3 != nil {
			m["s3Config"] = j.s3
		}
		jobs = append(jobs, m)
	}
	switch {
	case len(jobs) == 0:
		return empty(204)
	case r.op == "job-take-batch":
		s.wake()
		return answer(200, jobs)
	}
	s.wake()
	return answer(200, jobs[0])
}

func (s *Server) stopList(r *request) reply {
	w := s.caller(r)
	if w == nil {
		return failure(404, "no such worker")
	}
	s.await(r.Context(), s.opts.TakeWait, func() bool { return w.dead || len(w.stop) > 0 })
	if len(w.stop) == 0 || r.Context().Err() != nil {
		return empty(204)
	}
	ids := w.stop
	w.stop = nil
	return answer(200, map[string]any{"jobsToStop": ids})
}

// given finds the job of a result or chunk. One that is no longer known is
// 404; one that has ended, or was never given to this worker, is taken and
// ignored.
func (s *Server) given(r *request) (w *workerState, j *jobState, refused *reply) {
	w = s.caller(r)
	if w == nil || r.Method != "POST" || len(r.args) != 2 {
		a := failure(404, "no such worker")
		return nil, nil, &a
	}
	j = r.ep.jobs[r.args[1]]
	if j == nil {
		a := failure(404, "job not found")
		return nil, nil, &a
	}
	if j.final() || !slices.Contains(j.deliveries, w.id) {
		a := empty(200)
		return w, j, &a
	}
	return w, j, nil
}

func (s *Server) done(r *request) reply {
	if len(r.body) > runsyncPayload {
		return failure(http.StatusRequestEntityTooLarge, "result of %d bytes is over the limit", len(r.body))
	}
	var in struct {
		Status  string          `json:"status"`
		Output  json.RawMessage `json:"output"`
		Error   json.RawMessage `json:"error"`
		StopPod bool            `json:"stopPod"`
	}
	if err := decode(r.body, &in); err != nil {
		return failure(400, "invalid JSON: %v", err)
	}
	w, j, refused := s.given(r)
	progress := in.Status == InProgress
	if j != nil && !progress {
		j.results++
		delete(w.holding, j.id)
	}
	if refused != nil {
		return *refused
	}
	if progress {
		j.output = in.Output
		s.wake()
		return empty(200)
	}
	if in.StopPod {
		w.resets++
	}
	j.worker = w.id
	if in.Error != nil {
		s.finish(r.ep, j, Failed)
		j.err = in.Error
	} else {
		s.finish(r.ep, j, Completed)
	}
	j.output = in.Output
	return empty(200)
}

func (s *Server) chunk(r *request) reply {
	if len(r.body) > chunkPayload {
		return failure(http.StatusRequestEntityTooLarge, "chunk of %d bytes is over the limit", len(r.body))
	}
	var in json.RawMessage
	if err := decode(r.body, &in); err != nil {
		return failure(400, "invalid JSON: %v", err)
	}
	_, j, refused := s.given(r)
	if refused != nil {
		return *refused
	}
	j.chunks = append(j.chunks, in)
	s.wake()
	return empty(200)
}

func (s *Server) ping(r *request) reply {
	w := s.caller(r)
	if w == nil {
		return failure(404, "no such worker")
	}
	w.pings++
	q := r.URL.Query()
	w.sick = ""
	if q.Get("status") == "unhealthy" {
		w.sick = q.Get("check") + ": " + q.Get("reason")
	}
	return empty(200)
}

// WorkerRow is a worker as REST v2 lists it.
type WorkerRow struct {
	ID            string  `json:"id"`
	Status        string  `json:"status"` // RUNNING, IDLE, INITIALIZING, THROTTLED, UNHEALTHY
	IsStale       bool    `json:"isStale"`
	Version       *int    `json:"version"`
	GPUCount      int     `json:"gpuCount"`
	Image         *string `json:"image"`
	UptimeSeconds *int    `json:"uptimeSeconds"`
	GPUTypeID     *string `json:"gpuTypeId"`
	DataCenterID  *string `json:"dataCenterId"`
	StartedAt     *string `json:"startedAt"`
}

// SetFleet says which workers an endpoint has besides those that call.
func (s *Server) SetFleet(ep string, fleet ...WorkerRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpoints[ep]; e != nil {
		e.fleet = fleet
		e.spec = e.spec.withoutFleet()
	}
}

// Pings of a worker until now.
func (s *Server) Pings(ep, worker string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpoints[ep]; e != nil && e.workers[worker] != nil {
		return e.workers[worker].pings
	}
	return 0
}

// Unhealthy is why a worker called itself unhealthy.
func (s *Server) Unhealthy(ep, worker string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpoints[ep]; e != nil && e.workers[worker] != nil {
		return e.workers[worker].sick
	}
	return ""
}

// crew is all workers of an endpoint. The mutex is held.
func (s *Server) crew(ep *endpoint) []WorkerRow {
	now := s.clock.Now()
	list := slices.Clone(ep.fleet)
	list = append(list, s.booted(ep)...)
	for _, w := range ep.workers {
		if w.dead || now.Sub(w.seen) >= s.opts.Silence {
			continue
		}
		up, at, dc := int(now.Sub(w.since).Seconds()), w.since.UTC().Format(time.RFC3339), "EU-RO-1"
		status := "IDLE"
		switch {
		case w.sick != "":
			status = "UNHEALTHY"
		case len(w.holding) > 0:
			status = "RUNNING"
		}
		one := WorkerRow{ID: w.id, Status: status, UptimeSeconds: &up, StartedAt: &at, DataCenterID: &dc}
		if w.gpu != "" {
			one.GPUTypeID, one.GPUCount = &w.gpu, 1
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b WorkerRow) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return list
}

func (s *Server) summary(ep *endpoint) map[string]int {
	m := map[string]int{"running": 0, "idle": 0, "initializing": 0, "throttled": 0, "unhealthy": 0, "total": 0}
	names := map[string]string{"RUNNING": "running", "IDLE": "idle", "INITIALIZING": "initializing", "THROTTLED": "throttled", "UNHEALTHY": "unhealthy"}
	for _, w := range s.crew(ep) {
		name, ok := names[w.Status]
		if !ok {
			panic(fmt.Sprintf("worker status %q", w.Status))
		}
		m[name]++
		m["total"]++
	}
	return m
}
