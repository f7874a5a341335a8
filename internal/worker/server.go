package worker

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
)

// ServerOptions configures a Server.
type ServerOptions struct {
	Do          func(ctx context.Context, j Job, emit func(job.Chunk)) Result // required
	Logger      *slog.Logger                                                  // required
	Concurrency int                                                           // jobs at a time; 0 is 1
	// Key is required in every request, if set.
	Key string
}

// Server is RunPod's job API on this machine, for trying a worker: the paths
// of RunPod's own API server for tests, where a POST to /status or /stream
// waits for the job, and those of the service, where a GET does not. It is an
// http.Handler.
type Server struct {
	opts  ServerOptions
	slots chan struct{}
	life  context.Context
	end   context.CancelCauseFunc
	work  sync.WaitGroup

	mu   sync.Mutex
	jobs map[string]*localJob
	done struct{ completed, failed int }
}

type localJob struct {
	id       string
	created  time.Time
	cancel   context.CancelCauseFunc
	over     chan struct{}
	started  bool
	ended    time.Time
	canceled bool
	result   Result
	ran      time.Duration
	chunks   []job.Chunk
	buffered int // bytes of all chunks so far
	size     int // of the result, approximately
	streamed bool
}

// Bounds of a Server.
const (
	maxRequest  = 20 << 20
	localKeep   = 30 * time.Minute
	maxLocal    = 1000
	localBytes  = 256 << 20 // of results
	maxBuffered = 16 << 20  // of a job's chunks
)

// NewServer returns a server. Close ends its jobs.
func NewServer(o ServerOptions) *Server {
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	s := &Server{opts: o, slots: make(chan struct{}, o.Concurrency), jobs: map[string]*localJob{}}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// Close ends every job and waits for them.
func (s *Server) Close() {
	s.end(ErrShutdown)
	s.work.Wait()
}

// operations are the possible ends of a path.
var operations = map[string]func(*Server, http.ResponseWriter, *http.Request, string){
	"run": (*Server).run, "runsync": (*Server).runsync, "status": (*Server).status, "stream": (*Server).stream,
	"cancel": (*Server).cancel, "health": (*Server).health,
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	// A web page in a browser must not run code here.
	if r.Header.Get("Origin") != "" {
		reply(w, http.StatusForbidden, map[string]string{"detail": "requests of web pages are not answered"})
		return
	}
	if s.opts.Key != "" {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if subtle.ConstantTimeCompare([]byte(key), []byte(s.opts.Key)) != 1 {
			reply(w, http.StatusUnauthorized, map[string]string{"detail": "Unauthorized"})
			return
		}
	}
	op, id := route(r.URL.Path)
	f := operations[op]
	if f == nil {
		reply(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
		return
	}
	f(s, w, r, id)
}

// route finds the operation and the job's ID: in /run and /status/ID, below the
// endpoint's ID or not, below /v2 or not.
func route(path string) (op, id string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 0 && parts[0] == "v2" {
		parts = parts[1:]
	}
	for skip := 0; skip <= 1 && skip < len(parts); skip++ {
		rest := parts[skip:]
		switch rest[0] {
		case "run", "runsync", "health":
			if len(rest) == 1 {
				return rest[0], ""
			}
		case "status", "stream", "cancel":
			if len(rest) == 2 && rest[1] != "" {
				return rest[0], rest[1]
			}
		}
	}
	return "", ""
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// allowed answers requests of the wrong method.
func allowed(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	reply(w, http.StatusMethodNotAllowed, map[string]string{"detail": "Method Not Allowed"})
	return false
}

// submit starts the job of a request. If it returns nil, it has sent the
// response.
func (s *Server) submit(w http.ResponseWriter, r *http.Request) *localJob {
	if !allowed(w, r, "POST") {
		return nil
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		reply(w, http.StatusUnsupportedMediaType, map[string]string{"detail": "Content-Type must be application/json"})
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		status := http.StatusBadRequest
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			status = http.StatusRequestEntityTooLarge
		}
		reply(w, status, map[string]string{"detail": err.Error()})
		return nil
	}
	var in struct {
		Input  json.RawMessage `json:"input"`
		Policy struct {
			ExecutionTimeout int64 `json:"executionTimeout"`
		} `json:"policy"`
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &in); err != nil || json.Unmarshal(in.Input, &object) != nil || object == nil {
		reply(w, http.StatusUnprocessableEntity, map[string]any{"detail": []any{map[string]any{
			"type": "dict_type", "loc": []string{"body", "input"}, "msg": "Input should be a valid dictionary"}}})
		return nil
	}
	j := &localJob{id: "test-" + uuid(), created: time.Now(), over: make(chan struct{})}
	var ctx context.Context
	ctx, j.cancel = context.WithCancelCause(s.life)
	s.mu.Lock()
	s.tidy()
	if len(s.jobs) >= maxLocal || s.life.Err() != nil {
		s.mu.Unlock()
		j.cancel(nil)
		reply(w, http.StatusTooManyRequests, map[string]string{"detail": "too many jobs"})
		return nil
	}
	s.jobs[j.id] = j
	s.work.Add(1)
	s.mu.Unlock()
	limit := time.Duration(in.Policy.ExecutionTimeout) * time.Millisecond
	go s.execute(ctx, j, Job{ID: j.id, Input: in.Input}, limit)
	return j
}

// uuid returns a random UUID (version 4).
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

var errExecutionTimeout = errors.New("the time of policy.executionTimeout is over")

func (s *Server) execute(ctx context.Context, j *localJob, work Job, limit time.Duration) {
	defer s.work.Done()
	defer j.cancel(nil)
	r := Result{Stopped: true}
	select {
	case s.slots <- struct{}{}:
		s.mu.Lock()
		j.started = true
		s.mu.Unlock()
		if limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, limit, errExecutionTimeout)
			defer cancel()
		}
		began := time.Now()
		r = s.opts.Do(ctx, work, func(c job.Chunk) {
			s.mu.Lock()
			defer s.mu.Unlock()
			j.streamed = true
			const each = 64 // overhead of a chunk
			if j.buffered += len(c.Stdout) + len(c.Stderr) + each; j.buffered <= maxBuffered {
				j.chunks = append(j.chunks, c)
			}
		})
		j.ran = time.Since(began)
		<-s.slots
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j.result, j.ended, j.size = r, time.Now(), sizeOf(r)
	if j.status() == "COMPLETED" {
		s.done.completed++
	} else {
		s.done.failed++
	}
	close(j.over)
}

// status returns the job's status. The mutex is held.
func (j *localJob) status() string {
	switch {
	case j.canceled:
		return "CANCELLED"
	case j.ended.IsZero() && j.started:
		return "IN_PROGRESS"
	case j.ended.IsZero():
		return "IN_QUEUE"
	case j.result.Error != "" || j.result.Stopped:
		return "FAILED"
	}
	return "COMPLETED"
}

// describe returns the job in the form of the API.
func (s *Server) describe(j *localJob) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]any{"id": j.id, "status": j.status()}
	if !j.ended.IsZero() {
		m["delayTime"] = max(0, j.ended.Sub(j.created)-j.ran).Milliseconds()
		m["executionTime"] = j.ran.Milliseconds()
		if j.result.Output != nil && !j.canceled {
			m["output"] = j.result.Output
		}
		if j.result.Error != "" {
			m["error"] = j.result.Error
		}
	}
	return m
}

// sizeOf returns the approximate size of a result.
func sizeOf(r Result) int {
	if r.Output == nil {
		return 0
	}
	size := len(r.Output.Stdout) + len(r.Output.Stderr)
	if a := r.Output.Sallyport; a != nil {
		for _, f := range a.Files {
			size += len(f.Data)
		}
	}
	return size
}

// tidy removes jobs that ended long ago and, if there are too many, those that
// ended first. The mutex is held.
func (s *Server) tidy() {
	var ended []*localJob
	size := 0
	for _, j := range s.jobs {
		if !j.ended.IsZero() {
			ended = append(ended, j)
			size += j.size
		}
	}
	slices.SortFunc(ended, func(a, b *localJob) int { return a.ended.Compare(b.ended) })
	for _, j := range ended {
		if time.Since(j.ended) <= localKeep && len(s.jobs) < maxLocal && size <= localBytes {
			break
		}
		delete(s.jobs, j.id)
		size -= j.size
	}
}

func (s *Server) run(w http.ResponseWriter, r *http.Request, _ string) {
	if j := s.submit(w, r); j != nil {
		reply(w, http.StatusOK, map[string]string{"id": j.id, "status": "IN_PROGRESS"})
	}
}

func (s *Server) runsync(w http.ResponseWriter, r *http.Request, _ string) {
	j := s.submit(w, r)
	if j == nil {
		return
	}
	select {
	case <-j.over:
	case <-r.Context().Done(): // the client is gone, and no one else knows the ID
		j.cancel(errors.New("the client went away"))
		return
	}
	reply(w, http.StatusOK, s.describe(j))
}

// find returns the job of a request. If there is none, it has sent the
// response.
func (s *Server) find(w http.ResponseWriter, id string) *localJob {
	s.mu.Lock()
	j := s.jobs[id]
	s.mu.Unlock()
	if j == nil {
		reply(w, http.StatusNotFound, map[string]string{"id": id, "status": "FAILED", "error": "Job ID not found"})
	}
	return j
}

func (s *Server) status(w http.ResponseWriter, r *http.Request, id string) {
	if !allowed(w, r, "GET", "POST") {
		return
	}
	j := s.find(w, id)
	if j == nil {
		return
	}
	if r.Method == "POST" {
		select {
		case <-j.over:
		case <-r.Context().Done():
			return
		}
	}
	reply(w, http.StatusOK, s.describe(j))
}

// stream returns the chunks since the last request. A job without chunks has
// its whole output as its only chunk.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, id string) {
	if !allowed(w, r, "GET", "POST") {
		return
	}
	j := s.find(w, id)
	if j == nil {
		return
	}
	if r.Method == "POST" {
		select {
		case <-j.over:
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	list := []map[string]any{}
	for _, c := range j.chunks {
		list = append(list, map[string]any{"output": c})
	}
	j.chunks = nil
	if !j.ended.IsZero() && !j.streamed && j.result.Output != nil {
		j.streamed = true
		list = append(list, map[string]any{"output": j.result.Output})
	}
	answer := map[string]any{"id": j.id, "status": j.status(), "stream": list}
	s.mu.Unlock()
	reply(w, http.StatusOK, answer)
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request, id string) {
	if !allowed(w, r, "POST") {
		return
	}
	j := s.find(w, id)
	if j == nil {
		return
	}
	s.mu.Lock()
	if j.ended.IsZero() {
		j.canceled = true
	}
	s.mu.Unlock()
	j.cancel(ErrStopped)
	<-j.over
	reply(w, http.StatusOK, map[string]any{"id": j.id, "status": s.describe(j)["status"]})
}

func (s *Server) health(w http.ResponseWriter, r *http.Request, _ string) {
	if !allowed(w, r, "GET") {
		return
	}
	s.mu.Lock()
	working, queued := 0, 0
	for _, j := range s.jobs {
		switch j.status() {
		case "IN_PROGRESS":
			working++
		case "IN_QUEUE":
			queued++
		}
	}
	jobs := map[string]int{"completed": s.done.completed, "failed": s.done.failed, "inProgress": working, "inQueue": queued, "retried": 0}
	s.mu.Unlock()
	workers := map[string]int{"idle": 0, "running": 0, "initializing": 0, "ready": 0, "throttled": 0, "unhealthy": 0}
	if working > 0 {
		workers["running"] = 1
	} else {
		workers["idle"] = 1
	}
	reply(w, http.StatusOK, map[string]any{"jobs": jobs, "workers": workers})
}
