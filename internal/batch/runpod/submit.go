package runpod

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// RunPod's bounds.
const (
	maxPayload     = 10_000_000 // of /run
	maxSyncPayload = 20_000_000 // of /runsync
	minTimeout     = 5 * time.Second
	maxTimeout     = 7 * 24 * time.Hour
)

const (
	// shortRun is what runsync is for: its result is kept for one minute only.
	shortRun = 30 * time.Second
	syncWait = time.Second
	// margin is the time that RunPod gives a worker after the code's timeout, to
	// report the timeout itself.
	margin = 30 * time.Second
	// retention is how long RunPod keeps results of /run.
	retention = 30 * time.Minute
	// submitWait bounds the time in which a submission that certainly did not
	// arrive is repeated.
	submitWait = 2 * time.Minute
	// seeThrough is how long a submission goes on after its caller gave up.
	seeThrough = 15 * time.Second
	// searchAgain is the least time between two searches for a job.
	searchAgain = time.Minute
)

// runSpec is the data of a run's handle: all that Attach needs, and no secret.
type runSpec struct {
	Endpoint     string            `json:"endpoint"`
	Job          string            `json:"job,omitempty"` // empty: not known
	Sync         bool              `json:"sync,omitempty"`
	Sent         time.Time         `json:"sent"`
	Doubt        string            `json:"doubt,omitempty"` // what came instead of an answer to the submission
	Timeout      time.Duration     `json:"timeout"`
	Queue        time.Duration     `json:"queue"`
	TTL          time.Duration     `json:"ttl"`
	OutputBytes  int64             `json:"outputBytes"`
	Streams      bool              `json:"streams,omitempty"`
	Plain        bool              `json:"plain,omitempty"` // the worker is one that says nothing
	MinIsolation string            `json:"minIsolation,omitempty"`
	Require      map[string]string `json:"require,omitempty"`
}

const handleVersion = 1

func (s *runSpec) handle(id string) sandbox.Handle {
	data, err := json.Marshal(s)
	if err != nil {
		data = nil // cannot happen: strings and numbers
	}
	return sandbox.Handle{Backend: Name, Version: handleVersion, ID: id, Data: data}
}

// Submit implements batch.Service. If RunPod may have accepted the job without
// confirming it, the run's Result says so.
func (b *Service) Submit(ctx context.Context, j *batch.Job) (batch.Run, error) {
	if err := b.check(j); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	endpoint := b.opts.Endpoint
	wait := j.Queue
	k, err := b.worker(ctx, endpoint, wait)
	if errors.Is(err, errSleeping) {
		return nil, b.fail("start", sandbox.ErrStart, "no worker of endpoint %s answered within %v, and no code was sent: %s", endpoint, wait, strings.TrimPrefix(err.Error(), errSleeping.Error()+": "))
	}
	if err != nil {
		return nil, err
	}
	r := &run{b: b, id: j.ID, api: b.api(endpoint), spec: runSpec{
		Endpoint: endpoint, Timeout: j.Timeout, Queue: j.Queue, OutputBytes: outputLimit(j.Limits),
		MinIsolation: j.MinIsolation.String(), Plain: k.Report == nil,
	}}
	if err := b.accepts(k, j); err != nil {
		return nil, err
	}
	r.spec.Streams = k.Report != nil && k.Report.Streams
	for res, e := range j.Require {
		if r.spec.Require == nil {
			r.spec.Require = map[string]string{}
		}
		r.spec.Require[string(res)] = e.String()
	}
	op, body, err := b.body(r, j)
	if err != nil {
		return nil, err
	}
	st, t := b.submit(ctx, r.api, op, body, false)
	switch {
	case t == nil:
		r.adopt(st)
	case t.sent && (t.status == 0 || t.status >= 500 || t.status/100 == 2):
		b.log.Warn("runpod: a submission was not answered as it should be", "run", r.id, "error", t)
		r.spec.Doubt = t.instead()
		looking, done := afterwards(ctx)
		r.search(looking)
		done()
	default:
		return nil, b.explain("start", endpoint, t)
	}
	if ctx.Err() != nil { // the caller gave up
		err := r.Destroy(ctx)
		if err == nil {
			return nil, ctx.Err()
		}
		// The caller gets the run, to try again and to report that it may go on.
		b.log.Warn("runpod: a run that was given up could not be cancelled", "run", r.id, "error", err)
	}
	return r, nil
}

// outputLimit returns how much output is accepted from a worker. If no limit was
// asked for, the worker's own and RunPod's limit on results apply.
func outputLimit(l sandbox.Limits) int64 {
	if l.OutputBytes > 0 {
		return l.OutputBytes
	}
	return maxSyncPayload
}

// check refuses jobs that no endpoint can run, before anything is sent.
func (b *Service) check(j *batch.Job) error {
	if err := j.Check(); err != nil {
		return b.fail("start", sandbox.ErrInvalidSpec, "%w", err)
	}
	switch {
	case b.opts.Endpoint == "":
		return b.fail("start", sandbox.ErrUnavailable, noEndpoint)
	case j.Timeout+margin > maxTimeout:
		return b.fail("start", sandbox.ErrInvalidSpec, "a timeout of %v is more than RunPod allows: 7 days", j.Timeout)
	case j.Accelerator != "":
		return b.fail("start", sandbox.ErrUnsupported, "the endpoint determines the GPU, so %q cannot be requested: `sallyport deploy runpod --gpu` sets another", j.Accelerator)
	case len(j.Datasets) > 0:
		return b.fail("start", sandbox.ErrUnsupported, "RunPod has no data sets: pass files along, or let the code fetch them")
	}
	return nil
}

// accepts returns why this worker cannot run the job; nil if it can.
func (b *Service) accepts(k *known, j *batch.Job) error {
	switch {
	case k.Report == nil && !b.opts.AcceptUnknown:
		return b.fail("start", sandbox.ErrUnavailable, "%s", k.refused())
	case k.Report == nil && (len(j.Files) > 0 || len(j.Args) > 0 || len(j.Env) > 0):
		return b.fail("start", sandbox.ErrUnsupported, "the worker of endpoint %s takes code alone: no files, arguments or variables. Sallyport's own worker takes them (`sallyport deploy runpod`)", k.Endpoint)
	case k.Report == nil:
		return nil
	}
	if lacks := unmet(k.Report, j.MinIsolation, j.Require); lacks != "" {
		return b.fail("start", sandbox.ErrUnavailable, "the worker of endpoint %s lacks what the policy demands: %s. No code was sent. The settings policy.batchServices.* set the demands", k.Endpoint, lacks)
	}
	if j.Internet && !k.Report.Internet {
		return b.fail("start", sandbox.ErrUnsupported, "the worker of endpoint %s gives code no network; worker.internet in its configuration allows it", k.Endpoint)
	}
	return nil
}

// body returns the job as JSON, and the operation that takes it.
func (b *Service) body(r *run, j *batch.Job) (op string, body []byte, err error) {
	s := &r.spec
	s.Sent = time.Now().UTC().Round(time.Millisecond)
	req := &job.Request{Version: job.Version, Run: r.id, Owner: b.instance(), SentMs: s.Sent.UnixMilli()}
	in := job.Input{Sallyport: req}
	timeout := s.Timeout
	tooLarge := func(size int) error {
		return b.fail("start", sandbox.ErrInvalidSpec, "the code and its files are %.1f MB as a job, and RunPod takes 20 MB: send fewer files, or let the code fetch them", float64(size)/1e6)
	}
	size := len(j.Code)
	for _, f := range j.Files {
		size += base64.StdEncoding.EncodedLen(len(f.Data))
	}
	if size > maxSyncPayload {
		return "", nil, tooLarge(size)
	}
	if s.Plain {
		in.Code = j.Code
	} else {
		timeout += margin
		req.Code, req.Script, req.Args, req.Filename, req.Env = j.Code, j.Script, j.Args, j.Filename, j.Env
		req.TimeoutMs = s.Timeout.Milliseconds()
		req.Limits = job.FromLimits(j.Limits)
		req.Internet = j.Internet
		req.MinIsolation, req.Require = s.MinIsolation, s.Require
		for _, f := range j.Files {
			req.Files = append(req.Files, job.File{Path: f.Path, Data: f.Data, Mode: f.Mode})
		}
		req.Output = &job.Wanted{Stream: s.Streams, Files: true}
	}
	s.TTL = min(max(s.Queue+timeout+retention, 10*time.Second), maxTimeout)
	s.Sync = s.Timeout <= shortRun
	policy := map[string]int64{"executionTimeout": max(timeout, minTimeout).Milliseconds(), "ttl": s.TTL.Milliseconds()}
	for {
		if req.Output != nil {
			// In base64, next to the output, which JSON makes longer.
			room := int64(maxPayload)
			if s.Sync {
				room = maxSyncPayload
			}
			// The worker leaves out files where its output needs the room.
			req.Output.FileBytes = max((room-2*j.Limits.WithDefaults().OutputBytes-256<<10)*3/4, 1<<20)
		}
		body, err = json.Marshal(map[string]any{"input": in, "policy": policy})
		switch {
		case err != nil:
			return "", nil, b.fail("start", sandbox.ErrInvalidSpec, "%w", err)
		case len(body) > maxSyncPayload:
			return "", nil, tooLarge(len(body))
		case s.Sync:
			return "runsync", body, nil
		case len(body) <= maxPayload:
			return "run", body, nil
		}
		s.Sync = true
	}
}

// submit sends a job. It repeats a submission that certainly did not arrive, for
// a while, and one that may have arrived only if again is set, which says that
// running twice does no harm. A submission in progress goes on for a moment when
// ctx ends.
func (b *Service) submit(ctx context.Context, a *api, op string, body []byte, again bool) (*jobStatus, *trouble) {
	var query url.Values
	if op == "runsync" {
		query = url.Values{"wait": {strconv.FormatInt(syncWait.Milliseconds(), 10)}}
	}
	sending, done := afterwards(ctx)
	defer done()
	began := time.Now()
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		answer, t := a.call(sending, op, "", query, body)
		if t == nil {
			st := &jobStatus{}
			if err := json.Unmarshal(answer, st); err == nil && validJob().MatchString(string(st.ID)) {
				return st, nil
			}
			t = &trouble{op: op, status: http.StatusOK, sent: true, text: "the answer has no job ID"}
		}
		lost := t.sent && (t.status == 0 || t.status >= 500 || t.status/100 == 2)
		if lost && !again || !t.passing() || ctx.Err() != nil || time.Since(began)+t.retry >= submitWait {
			return nil, t
		}
		if err := sleep(ctx, max(jitter(pause), t.retry)); err != nil {
			return nil, &trouble{op: op, err: err}
		}
	}
}

// afterwards returns a context that ends shortly after ctx.
func afterwards(ctx context.Context) (context.Context, func()) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(seeThrough)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-later.Done():
		}
	})
	return later, func() {
		stop()
		cancel()
	}
}

// jobList is the service's answer to a request for the jobs.
type jobList struct {
	asked time.Time
	jobs  []listedJob
}

// jobs lists our jobs of an endpoint, as of some moment after since. Lists are
// large and RunPod limits their rate, so callers that wait share one.
func (b *Service) jobs(ctx context.Context, a *api, since time.Time) ([]listedJob, *trouble) {
	select {
	case b.listing <- struct{}{}:
	case <-ctx.Done():
		return nil, &trouble{op: "requests", err: ctx.Err()}
	}
	defer func() { <-b.listing }()
	if l := b.lists[a.endpoint]; l.asked.After(since) {
		return l.jobs, nil
	}
	asked := time.Now()
	answer, t := a.call(ctx, "requests", "", nil, nil)
	if t != nil {
		return nil, t
	}
	l := jobList{asked, listed(answer)}
	b.lists[a.endpoint] = l
	return l.jobs, nil
}

// search looks for the job of a run whose submission was not answered, and
// reports whether it was found.
func (r *run) search(ctx context.Context) bool {
	r.mu.Lock()
	lately := !r.searched.IsZero() && time.Since(r.searched) < searchAgain
	r.searched = time.Now()
	r.mu.Unlock()
	if lately {
		return false
	}
	for try := range 3 {
		if try > 0 && sleep(ctx, jitter(2*time.Second)) != nil {
			return false
		}
		jobs, t := r.b.jobs(ctx, r.api, time.Now())
		if t != nil {
			if t.passing() {
				continue
			}
			return false // this service does not list jobs
		}
		var mine []listedJob
		for _, j := range jobs {
			if j.run == r.id {
				mine = append(mine, j)
			}
		}
		if len(mine) == 0 {
			continue
		}
		r.mu.Lock()
		r.spec.Job = mine[0].id
		r.twice = len(mine) > 1
		r.mu.Unlock()
		return true
	}
	return false
}

// unknown describes a run whose submission was not answered.
func (r *run) unknown() string {
	until := r.spec.Sent.Add(r.spec.Queue + r.spec.Timeout + margin)
	return fmt.Sprintf("%s, so it is unknown whether RunPod has the run. It was not sent again, because it might then run twice. If RunPod has it, it ends by itself before %s; look for %s among the requests at https://console.runpod.io/serverless/user/endpoint/%s",
		or(r.spec.Doubt, "RunPod did not answer the submission"), until.UTC().Format("15:04 MST on 2 January"), r.id, r.spec.Endpoint)
}

// Attach implements batch.Service. A handle without data is of a run whose
// submission was interrupted.
func (b *Service) Attach(ctx context.Context, h sandbox.Handle) (batch.Run, error) {
	if h.Backend != Name {
		return nil, b.fail("attach", sandbox.ErrGone, "the run belongs to %q", h.Backend)
	}
	if len(h.Data) == 0 {
		if b.opts.Endpoint == "" {
			return nil, b.fail("attach", sandbox.ErrUnavailable, noEndpoint)
		}
		r := &run{b: b, id: h.ID, api: b.api(b.opts.Endpoint), spec: runSpec{Endpoint: b.opts.Endpoint, Sent: time.Now(), Timeout: maxTimeout, Queue: maxTimeout,
			TTL: maxTimeout, OutputBytes: outputLimit(sandbox.Limits{}), Streams: true}}
		if !r.search(ctx) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, b.fail("attach", sandbox.ErrGone, "the program ended while it submitted the run, and RunPod does not list it: most likely it never began; if it did, its limits end it. It is %s among the requests at https://console.runpod.io/serverless/user/endpoint/%s", h.ID, b.opts.Endpoint)
		}
		return r, nil
	}
	var s runSpec
	if h.Version != handleVersion || json.Unmarshal(h.Data, &s) != nil {
		return nil, b.fail("attach", sandbox.ErrUnsupported, "the run was started by another version of Sallyport, and only that version can read its handle")
	}
	if !validEndpoint().MatchString(s.Endpoint) || s.Job != "" && !validJob().MatchString(s.Job) {
		return nil, b.fail("attach", sandbox.ErrGone, "the run's handle is damaged")
	}
	return &run{b: b, id: h.ID, api: b.api(s.Endpoint), spec: s}, nil
}
