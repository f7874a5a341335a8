package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/store"
)

// Options configures a Worker.
type Options struct {
	Place   Place
	Do      func(ctx context.Context, j Job, emit func(job.Chunk)) Result // of an Executor; required
	Logger  *slog.Logger                                                  // required
	HTTP    *http.Client
	Version string
	// Concurrency is how many jobs run at a time; 0 is 1.
	Concurrency int
	// Drain is how long jobs may continue after the worker has been asked to
	// end.
	Drain time.Duration
	// KeepResults is how long a result is offered that the service does not
	// accept.
	KeepResults time.Duration
	Outbox      store.Dir
	// Refresh makes RunPod recreate the machine after each job; the worker
	// ends.
	Refresh bool
	// Progress is how often a plain client receives the running time of its
	// job; 0: never.
	Progress time.Duration
}

// Worker takes jobs and answers them.
type Worker struct {
	opts   Options
	client *client
	outbox *outbox
	log    *slog.Logger

	mu    sync.Mutex
	jobs  map[string]context.CancelCauseFunc // at work, by ID
	freed chan struct{}                      // holds a token when a job has ended
	ended bool                               // by Refresh
}

// New returns a worker. It starts nothing.
func New(o Options) (*Worker, error) {
	if o.Do == nil || o.Logger == nil {
		return nil, errors.New("worker: an executor and a logger are required")
	}
	if o.HTTP == nil {
		o.HTTP = http.DefaultClient
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	if o.Place.PingEvery <= 0 {
		o.Place.PingEvery = 10 * time.Second
	}
	c, err := newClient(o.Place, o.HTTP, o.Version)
	if err != nil {
		return nil, err
	}
	return &Worker{
		opts: o, client: c, log: o.Logger,
		outbox: &outbox{client: c, dir: o.Outbox, keep: o.KeepResults, log: o.Logger},
		jobs:   map[string]context.CancelCauseFunc{}, freed: make(chan struct{}, 1),
	}, nil
}

// Unhealthy reports to the service that this worker cannot work, and why.
func (w *Worker) Unhealthy(ctx context.Context, check, reason string) {
	if w.opts.Place.Ping == "" || w.opts.Place.Token == "" {
		return
	}
	err := w.client.ping(ctx, 10*time.Second, nil, url.Values{"status": {"unhealthy"}, "check": {check}, "reason": {reason}})
	if err != nil {
		w.log.Warn("the state of the worker could not be reported to the service", "error", err)
	}
}

// Run works until ctx is done, and then drains: it takes no more jobs, and
// gives the current ones Options.Drain to end. It returns when everything has
// ended.
func (w *Worker) Run(ctx context.Context) error {
	// Jobs, pings and results continue after the worker stops taking jobs.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var beside, working sync.WaitGroup
	beside.Go(func() { w.pings(life) })
	if w.client.stop != "" {
		beside.Go(func() { w.stops(life) })
	} else {
		w.log.Warn("jobs cannot be stopped: the address of job-take has an unknown form")
	}
	if err := w.outbox.recover(life); err != nil {
		w.log.Error("results may be lost", "error", err)
	}
	w.log.Info("taking jobs", "worker", w.opts.Place.WorkerID, "concurrency", w.opts.Concurrency)
	w.take(ctx, life, &working)

	w.log.Info("taking no more jobs", "working", len(w.working()))
	drained := make(chan struct{})
	go func() {
		working.Wait()
		w.outbox.work.Wait()
		close(drained)
	}()
	timer := time.NewTimer(w.opts.Drain)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
		w.log.Warn("the time to finish is over: jobs are cancelled", "jobs", w.working())
		w.mu.Lock()
		for _, cancel := range w.jobs {
			cancel(ErrShutdown)
		}
		w.mu.Unlock()
		// They still report their end; a result that is not accepted now stays
		// on disk.
		select {
		case <-drained:
		case <-time.After(lastWords):
		}
	}
	end(ErrShutdown)
	<-drained
	beside.Wait()
	return nil
}

// lastWords is how long cancelled jobs have to report that they were cancelled.
const lastWords = 10 * time.Second

// take takes jobs until ctx is done. It then waits a moment for a poll that is
// under way, because a job that is just being delivered would be lost.
func (w *Worker) take(ctx, life context.Context, working *sync.WaitGroup) {
	poll, stop := context.WithCancel(life)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(min(w.opts.Drain/2, 5*time.Second)):
		case <-poll.Done():
		}
		stop()
	})()
	for wait := time.Duration(0); ctx.Err() == nil && !w.refreshed(); {
		busy := len(w.working())
		if busy >= w.opts.Concurrency {
			select {
			case <-w.freed:
			case <-ctx.Done():
			}
			continue
		}
		asked := time.Now()
		jobs, err := w.client.take(poll, w.opts.Concurrency-busy, w.opts.Concurrency > 1, busy > 0)
		for _, j := range jobs {
			w.begin(life, j, working)
		}
		if err == nil {
			wait = 0
			if len(jobs) == 0 {
				unhurried(ctx, asked)
			}
			continue
		}
		if poll.Err() != nil {
			return
		}
		wait = w.backOff("job-take", err, wait)
		sleep(ctx, wait)
	}
}

func (w *Worker) refreshed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

func (w *Worker) working() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.jobs))
	for id := range w.jobs {
		ids = append(ids, id)
	}
	return ids
}

// backOff returns how long to wait after a response without jobs.
func (w *Worker) backOff(op string, err error, before time.Duration) time.Duration {
	var s *errStatus
	if errors.As(err, &s) {
		switch {
		case s.status == http.StatusBadRequest:
			return time.Second // with FlashBoot: no job
		case s.status == http.StatusTooManyRequests:
			return max(5*time.Second, s.after)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return 0 // the poll's own timeout
	}
	wait := min(max(2*before, time.Second), 30*time.Second)
	w.log.Warn("the service does not answer as it should", "call", op, "error", err, "again", wait.String())
	return wait
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// unhurried keeps polls without jobs a second apart: the service holds them
// open, but a proxy in between may not.
func unhurried(ctx context.Context, asked time.Time) {
	sleep(ctx, time.Second-time.Since(asked))
}

// pings reports that the worker is alive, until life is over.
func (w *Worker) pings(life context.Context) {
	if w.opts.Place.Ping == "" || w.opts.Place.Token == "" {
		w.log.Warn("no pings: their address or the token is not set")
		return
	}
	every := w.opts.Place.PingEvery
	for life.Err() == nil {
		if err := w.client.ping(life, 2*every, w.working(), nil); err != nil && life.Err() == nil {
			w.log.Debug("a ping failed", "error", err)
		}
		sleep(life, every)
	}
}

// stops ends jobs at the service's request.
func (w *Worker) stops(life context.Context) {
	for wait := time.Duration(0); life.Err() == nil; {
		asked := time.Now()
		ids, err := w.client.stops(life)
		for _, id := range ids {
			w.mu.Lock()
			cancel := w.jobs[id]
			w.mu.Unlock()
			if cancel != nil {
				w.log.Info("a job is stopped", "job", id)
				cancel(ErrStopped)
			}
		}
		if err == nil {
			wait = 0
			if len(ids) == 0 {
				unhurried(life, asked)
			}
			continue
		}
		if life.Err() != nil {
			return
		}
		wait = w.backOff("job-stop", err, wait)
		sleep(life, wait)
	}
}

// begin starts a job. A job that is already running here runs once and is
// answered once.
func (w *Worker) begin(life context.Context, j Job, working *sync.WaitGroup) {
	ctx, cancel := context.WithCancelCause(life)
	w.mu.Lock()
	if _, twice := w.jobs[j.ID]; twice {
		w.mu.Unlock()
		cancel(nil)
		w.log.Warn("a job was delivered again while it runs", "job", j.ID)
		return
	}
	w.jobs[j.ID] = cancel
	w.mu.Unlock()
	working.Go(func() {
		defer func() {
			w.mu.Lock()
			delete(w.jobs, j.ID)
			w.ended = w.ended || w.opts.Refresh
			w.mu.Unlock()
			cancel(nil)
			select {
			case w.freed <- struct{}{}:
			default:
			}
		}()
		w.work(ctx, life, j)
	})
}

// work runs a job and posts its result.
func (w *Worker) work(ctx, life context.Context, j Job) {
	began := time.Now()
	w.log.Info("a job begins", "job", j.ID)
	var emit func(job.Chunk)
	if w.opts.Place.PostStream != "" {
		emit = w.stream(ctx, j.ID)
	}
	quiet, hush := context.WithCancel(ctx)
	var telling sync.WaitGroup
	if w.opts.Progress > 0 {
		telling.Go(func() { w.progress(quiet, j.ID, began) })
	}
	r := w.opts.Do(ctx, j, emit)
	hush()
	telling.Wait() // a report after the result would replace it
	log := w.log.With("job", j.ID, "took", time.Since(began).Round(time.Millisecond).String())
	if r.Stopped {
		log.Info("a job was stopped; its result is not needed")
		return
	}
	body, err := json.Marshal(struct {
		Result
		StopPod bool `json:"stopPod,omitempty"`
	}{r, w.opts.Refresh})
	if err != nil {
		log.Error("a result cannot be encoded", "error", err)
		body = []byte(`{"error":"the worker could not encode the result"}`)
	}
	if r.Error != "" {
		log.Info("a job has failed", "reason", r.Error)
	} else {
		log.Info("a job has ended", "returnCode", r.Output.ReturnCode, "end", r.Output.Sallyport.End)
	}
	w.outbox.deliver(life, j.ID, body)
}

// progress reports to a plain client that its job is running.
func (w *Worker) progress(ctx context.Context, id string, began time.Time) {
	for {
		sleep(ctx, w.opts.Progress)
		if ctx.Err() != nil {
			return
		}
		body, _ := json.Marshal(map[string]any{"status": "IN_PROGRESS", "output": map[string]any{"seconds": int(time.Since(began).Seconds())}})
		if err := w.client.post(ctx, w.client.place.PostOutput, id, false, body); err != nil {
			w.log.Debug("a job's progress was not taken", "job", id, "error", err)
		}
	}
}

// streamTime bounds the attempts to post a part of a stream, because the code,
// and then its result, wait for them.
const streamTime = 10 * time.Second

// stream posts a job's stream. A part that is not accepted ends it: what
// follows would not continue it, and the result contains all of it too.
func (w *Worker) stream(ctx context.Context, id string) func(job.Chunk) {
	over := false
	return func(c job.Chunk) {
		if over {
			return
		}
		if err := w.chunk(ctx, id, c); err != nil {
			over = true
			if ctx.Err() == nil {
				w.log.Warn("a part of a job's stream was not taken: the result alone has the rest", "job", id, "error", err)
			}
		}
	}
}

func (w *Worker) chunk(ctx context.Context, id string, c job.Chunk) error {
	body, err := json.Marshal(map[string]any{"output": c})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, streamTime)
	defer cancel()
	for try := range 3 {
		err = w.client.post(ctx, w.client.place.PostStream, id, false, body)
		if err == nil || final(err) || ctx.Err() != nil {
			break
		}
		sleep(ctx, time.Duration(try+1)*500*time.Millisecond)
	}
	return err
}
