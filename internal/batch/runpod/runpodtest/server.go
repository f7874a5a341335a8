package runpodtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The keys that a Server knows unless its Options say otherwise.
const (
	Key       = "rpa_TESTKEY0123456789"
	WorkerKey = "worker-token-0123456789"
)

// RunPod's own limits.
const (
	runPayload     = 10 << 20
	runsyncPayload = 20 << 20
	chunkPayload   = 1 << 20
	keepAsync      = 30 * time.Minute
	keepSync       = time.Minute
	defaultTimeout = 10 * time.Minute
	defaultTTL     = 24 * time.Hour
	maxDeliveries  = 4 // not published
)

// Options of a Server. The zero value is sensible.
type Options struct {
	Key, WorkerKey string
	Clock          Clock
	// Endpoints exist from the beginning.
	Endpoints []string
	// TakeWait is how long a job-take or job-stop without an answer is held;
	// negative: not at all.
	TakeWait time.Duration
	// Silence is how long a worker may say nothing before its jobs are given
	// to another. RunPod does not publish it.
	Silence time.Duration
	// Rates replace RunPod's, by operation.
	Rates map[string]Rate
	// NoRequests: /requests answers 404.
	NoRequests bool
	// Boot is how long the workers of an endpoint made through REST are
	// INITIALIZING, BootStatus what they are then; "" is IDLE.
	Boot       time.Duration
	BootStatus string
	// Seed of the faults' dice.
	Seed uint64
}

// Rate is how many requests an operation takes in ten seconds, and how many
// at the same time. 0: any number.
type Rate struct{ Per10s, Concurrent int }

// Rates are RunPod's published ones, for one endpoint.
var rates = map[string]Rate{
	"runsync": {2000, 400}, "run": {1000, 200}, "status": {2000, 400}, "status-sync": {2000, 400},
	"stream": {2000, 400}, "cancel": {100, 20}, "purge-queue": {2, 0}, "requests": {10, 2},
}

// Server is the double. It is an http.Handler for all of RunPod's hosts at
// once, and safe for concurrent use.
type Server struct {
	opts  Options
	clock Clock

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced with every change
	due       time.Time     // when time has something to do; zero: never
	endpoints map[string]*endpoint
	templates map[string]*template
	faults    []*armed
	faulted   map[string]int
	random    *rand.Rand
	journal   []Entry
	serial    int
	windows   map[string][]time.Time
	inflight  map[string]int
}

// Entry is a request that a Server has answered.
type Entry struct {
	Time          time.Time
	Op            string
	Method, Path  string
	Query         string
	Authorization string
	UserAgent     string
	Body          []byte
	Status        int // 0: the connection was broken
}

// New is a Server with these options.
func New(opts Options) *Server {
	if opts.Key == "" {
		opts.Key = Key
	}
	if opts.WorkerKey == "" {
		opts.WorkerKey = WorkerKey
	}
	if opts.Clock == nil {
		opts.Clock = realClock{}
	}
	if opts.TakeWait == 0 {
		opts.TakeWait = 5 * time.Second
	}
	if opts.Silence == 0 {
		opts.Silence = time.Minute
	}
	s := &Server{opts: opts, clock: opts.Clock, changed: make(chan struct{}), endpoints: map[string]*endpoint{},
		templates: map[string]*template{}, faulted: map[string]int{}, random: newRandom(opts.Seed),
		windows: map[string][]time.Time{}, inflight: map[string]int{}}
	for _, id := range opts.Endpoints {
		s.endpoints[id] = newEndpoint(id)
	}
	return s
}

// Journal is every request until now.
func (s *Server) Journal() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Entry(nil), s.journal...)
}

// Count is how many requests of an operation there were.
func (s *Server) Count(op string) (n int) {
	for _, e := range s.Journal() {
		if e.Op == op {
			n++
		}
	}
	return n
}

// request is what a handler gets, with its body read.
type request struct {
	*http.Request
	ep   *endpoint
	op   string
	args []string // the path after the operation
	body []byte
}

func (r *request) millis(name string, low, high, otherwise time.Duration) time.Duration {
	n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return min(max(time.Duration(n)*time.Millisecond, low), high)
}

// reply is a whole answer.
type reply struct {
	status int
	header map[string]string
	body   []byte
}

func answer(status int, v any) reply {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return reply{status, map[string]string{"Content-Type": "application/json"}, body}
}

// failure has the body that was seen most; RunPod does not document any.
func failure(status int, format string, args ...any) reply {
	return answer(status, map[string]string{"error": fmt.Sprintf(format, args...)})
}

func empty(status int) reply { return reply{status: status} }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	op := "rest"
	job := len(parts) >= 3 && parts[0] == "v2" && !isREST(parts[1])
	if job {
		op = parts[2]
	}
	e := Entry{Time: s.clock.Now(), Op: op, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Authorization: r.Header.Get("Authorization"), UserAgent: r.Header.Get("User-Agent")}
	note := func(status int) {
		e.Status = status
		s.mu.Lock()
		s.journal = append(s.journal, e)
		s.mu.Unlock()
	}
	f := s.fault(op, r)
	if f.Before {
		note(0)
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	if err != nil {
		note(0)
		panic(http.ErrAbortHandler)
	}
	e.Body = body
	if f.Slow > 0 {
		select {
		case <-s.clock.After(f.Slow):
		case <-r.Context().Done():
			note(0)
			panic(http.ErrAbortHandler)
		}
	}
	req := &request{Request: r, op: op, body: body}
	var a reply
	switch {
	case f.Status != 0:
		a = failure(f.Status, "injected")
		if f.Retry > 0 {
			a.header["Retry-After"] = strconv.Itoa(int((f.Retry + time.Second - 1) / time.Second))
		}
	case job:
		req.args = parts[3:]
		a = s.job(req, parts[1])
	case len(parts) >= 2 && parts[0] == "v2":
		req.args = parts[1:]
		a = s.rest(req)
	default:
		a = failure(404, "no such path")
	}
	if f.After {
		note(0)
		panic(http.ErrAbortHandler)
	}
	if f.Garbage {
		a = reply{a.status, map[string]string{"Content-Type": "text/html"}, []byte("<html><body>Bad gateway</body></html>")}
	}
	note(a.status)
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	if f.Cut {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)+1))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body[:len(a.body)/2])
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}

// job serves the job API and the workers' API of one endpoint.
func (s *Server) job(r *request, id string) reply {
	serve, forWorkers := workerOps[r.op]
	auth := r.Header.Get("Authorization")
	if forWorkers {
		if auth != s.opts.WorkerKey {
			return failure(401, "unauthorized worker")
		}
	} else {
		if auth != s.opts.Key && auth != "Bearer "+s.opts.Key {
			return failure(401, "Unauthorized")
		}
		serve = clientOps[r.op]
	}
	if serve == nil {
		return failure(404, "no such operation")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.ep = s.endpoints[id]
	if r.ep == nil {
		return failure(404, "endpoint not found")
	}
	if !forWorkers {
		release, refused := s.admit(id, r.op)
		if refused != nil {
			return *refused
		}
		defer release()
	}
	s.tick()
	return serve(s, r)
}

// admit counts a request against its operation's rate. The mutex is held.
func (s *Server) admit(id, op string) (release func(), refused *reply) {
	rate, ok := s.opts.Rates[op]
	if !ok {
		rate = rates[op]
	}
	key, now := id+" "+op, s.clock.Now()
	window := s.windows[key]
	for len(window) > 0 && now.Sub(window[0]) >= 10*time.Second {
		window = window[1:]
	}
	s.windows[key] = window
	wait := time.Duration(0)
	switch {
	case rate.Per10s > 0 && len(window) >= rate.Per10s:
		wait = 10*time.Second - now.Sub(window[0])
	case rate.Concurrent > 0 && s.inflight[key] >= rate.Concurrent:
		wait = time.Second
	default:
		s.windows[key] = append(window, now)
		s.inflight[key]++
		return func() { s.inflight[key]-- }, nil
	}
	a := failure(429, "Too many requests")
	a.header["Retry-After"] = strconv.Itoa(int((wait + time.Second - 1) / time.Second))
	return nil, &a
}

// wake lets everybody who waits look again. The mutex is held.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await gives the mutex, which is held, to others until done, or for as long
// as the request's sender is there, at most for wait.
func (s *Server) await(ctx context.Context, wait time.Duration, done func() bool) {
	until := s.clock.Now().Add(wait)
	for {
		s.tick()
		now := s.clock.Now()
		if done() || !now.Before(until) || ctx.Err() != nil {
			return
		}
		next := until
		if !s.due.IsZero() && s.due.Before(next) {
			next = s.due
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.clock.After(max(next.Sub(now), time.Millisecond)):
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
}

func decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("more than one value")
	}
	return nil
}
