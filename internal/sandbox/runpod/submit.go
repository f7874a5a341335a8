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

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/runpod/job"
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
	// margin is what RunPod leaves a worker beyond the code's time, to say
	// itself that it was up.
	margin = 30 * time.Second
	// retention is how long RunPod keeps results of /run.
	retention = 30 * time.Minute
	// submitWait bounds how long a submission is tried again that certainly
	// did not arrive.
	submitWait = 2 * time.Minute
	// seeThrough is how long what was begun goes on when its caller gives up.
	seeThrough = 15 * time.Second
	// searchAgain is how soon a job is not looked for again.
	searchAgain = time.Minute
)

// runSpec is what a run's handle keeps: all that Attach needs, and no secret.
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
		data = nil // cannot happen: texts and numbers
	}
	return sandbox.Handle{Backend: Name, Version: handleVersion, ID: id, Data: data}
}

// Start implements sandbox.Backend: it submits the job. Where RunPod may have
// taken it and did not say so, the run is one whose Result says that.
func (b *Backend) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	if err := b.check(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	endpoint := b.opts.Endpoint
	wait := spec.Batch.Queue
	k, err := b.worker(ctx, endpoint, wait)
	if errors.Is(err, errSleeping) {
		return nil, b.fail("start", sandbox.ErrStart, "no worker of endpoint %s answered within %v, and no code was sent: %s", endpoint, wait, strings.TrimPrefix(err.Error(), errSleeping.Error()+": "))
	}
	if err != nil {
		return nil, err
	}
	r := &run{b: b, id: spec.ID, api: b.api(endpoint), spec: runSpec{
		Endpoint: endpoint, Timeout: spec.Batch.Timeout, Queue: spec.Batch.Queue, OutputBytes: outputLimit(spec.Limits),
		MinIsolation: spec.Batch.MinIsolation.String(), Plain: k.Report == nil,
	}}
	if err := b.accepts(k, spec); err != nil {
		return nil, err
	}
	r.spec.Streams = k.Report != nil && k.Report.Streams
	for res, e := range spec.Batch.Require {
		if r.spec.Require == nil {
			r.spec.Require = map[string]string{}
		}
		r.spec.Require[string(res)] = e.String()
	}
	op, body, err := b.body(r, spec)
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
	if ctx.Err() != nil { // given up meanwhile
		err := r.Destroy(ctx)
		if err == nil {
			return nil, ctx.Err()
		}
		// The caller has it, to try again and to say that it may go on.
		b.log.Warn("runpod: a run that was given up could not be cancelled", "run", r.id, "error", err)
	}
	return r, nil
}

// outputLimit bounds the output that is taken from a worker. Where none was
// asked for, the worker's own limit counts, and RunPod's on results.
func outputLimit(l sandbox.Limits) int64 {
	if l.OutputBytes > 0 {
		return l.OutputBytes
	}
	return maxSyncPayload
}

// check refuses what no endpoint can do, before anything is sent.
func (b *Backend) check(spec *sandbox.Spec) error {
	if err := spec.Check(); err != nil {
		return b.fail("start", sandbox.ErrInvalidSpec, "%w", err)
	}
	bt := spec.Batch
	switch {
	case b.opts.Endpoint == "":
		return b.fail("start", sandbox.ErrUnavailable, noEndpoint)
	case spec.Code == "":
		return b.fail("start", sandbox.ErrInvalidSpec, "there is no code")
	case bt.Timeout <= 0 || bt.Queue <= 0:
		return b.fail("start", sandbox.ErrInvalidSpec, "a batch run needs a timeout and a limit on its wait")
	case bt.Timeout+margin > maxTimeout:
		return b.fail("start", sandbox.ErrInvalidSpec, "a timeout of %v is more than RunPod allows: 7 days", bt.Timeout)
	case spec.Root.Image != "" || spec.Root.Python != "":
		return b.fail("start", sandbox.ErrUnsupported, "the image and its Python are the endpoint's: `sallyport deploy runpod --image` sets another")
	case bt.Accelerator != "":
		return b.fail("start", sandbox.ErrUnsupported, "the GPU is the endpoint's, and %q cannot be asked for: `sallyport deploy runpod --gpu` sets another", bt.Accelerator)
	case len(bt.Datasets) > 0:
		return b.fail("start", sandbox.ErrUnsupported, "RunPod has no data sets: pass files along, or let the code fetch them")
	}
	return nil
}

// accepts says why this worker cannot do what the spec asks for.
func (b *Backend) accepts(k *known, spec *sandbox.Spec) error {
	switch {
	case k.Report == nil && !b.opts.AcceptUnknown:
		return b.fail("start", sandbox.ErrUnavailable, "%s", k.refused())
	case k.Report == nil && (len(spec.Files) > 0 || len(spec.Batch.Args) > 0 || len(spec.Env) > 0):
		return b.fail("start", sandbox.ErrUnsupported, "the worker of endpoint %s takes code alone: no files, arguments or variables. Sallyport's own worker does (`sallyport deploy runpod`)", k.Endpoint)
	case k.Report == nil:
		return nil
	}
	if lacks := unmet(k.Report, spec.Batch.MinIsolation, spec.Batch.Require); lacks != "" {
		return b.fail("start", sandbox.ErrUnavailable, "the worker of endpoint %s lacks what the policy demands: %s. No code was sent. the settings policy.elsewhere say what is demanded", k.Endpoint, lacks)
	}
	if spec.Network == sandbox.NetworkInternet && !k.Report.Internet {
		return b.fail("start", sandbox.ErrUnsupported, "the worker of endpoint %s gives code no network; its configuration can", k.Endpoint)
	}
	return nil
}

// body is the job, and the operation that takes it.
func (b *Backend) body(r *run, spec *sandbox.Spec) (op string, body []byte, err error) {
	s := &r.spec
	s.Sent = time.Now().UTC().Round(time.Millisecond)
	req := &job.Request{Version: job.Version, Run: r.id, Owner: b.instance(), SentMs: s.Sent.UnixMilli()}
	in := job.Input{Sallyport: req}
	timeout := s.Timeout
	tooLarge := func(size int) error {
		return b.fail("start", sandbox.ErrInvalidSpec, "the code and its files are %.1f MB as a job, and RunPod takes 20 MB: send fewer files, or let the code fetch them", float64(size)/1e6)
	}
	size := len(spec.Code)
	for _, f := range spec.Files {
		size += base64.StdEncoding.EncodedLen(len(f.Data))
	}
	if size > maxSyncPayload {
		return "", nil, tooLarge(size)
	}
	if s.Plain {
		in.Code = spec.Code
	} else {
		timeout += margin
		req.Code, req.Script, req.Args, req.Filename, req.Env = spec.Code, spec.Batch.Script, spec.Batch.Args, spec.Batch.Filename, spec.Env
		req.TimeoutMs = s.Timeout.Milliseconds()
		req.Limits = job.FromLimits(spec.Limits)
		req.Internet = spec.Network == sandbox.NetworkInternet
		req.MinIsolation, req.Require = s.MinIsolation, s.Require
		for _, f := range spec.Files {
			req.Files = append(req.Files, job.File{Path: f.Path, Data: f.Data, Mode: f.Mode})
		}
		req.Output = &job.Wanted{Stream: s.Streams, Files: true}
	}
	s.TTL = min(max(s.Queue+timeout+retention, 10*time.Second), maxTimeout)
	s.Sync = s.Timeout <= shortRun
	policy := map[string]int64{"executionTimeout": max(timeout, minTimeout).Milliseconds(), "ttl": s.TTL.Milliseconds()}
	for {
		if req.Output != nil {
			// In base64, beside the output, which JSON makes longer.
			room := int64(maxPayload)
			if s.Sync {
				room = maxSyncPayload
			}
			// The worker leaves out files where its output needs the room.
			req.Output.FileBytes = max((room-2*spec.Limits.WithDefaults().OutputBytes-256<<10)*3/4, 1<<20)
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

// submit sends a job. What certainly did not arrive is sent again, for a
// while; what may have arrived only if again says that twice does no harm. A
// submission that was begun is seen through when ctx ends.
func (b *Backend) submit(ctx context.Context, a *api, op string, body []byte, again bool) (*jobStatus, *trouble) {
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
			if err := json.Unmarshal(answer, st); err == nil && validJob.MatchString(string(st.ID)) {
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

// afterwards is a context that goes on for a moment when ctx ends.
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

// jobList is what the service listed.
type jobList struct {
	asked time.Time
	jobs  []listedJob
}

// jobs lists our jobs of an endpoint, as they were at some moment after since.
// Lists are large, and RunPod gives few of them: who waits shares one.
func (b *Backend) jobs(ctx context.Context, a *api, since time.Time) ([]listedJob, *trouble) {
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

// search looks for the job of a run whose submission was not answered.
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
			return false // not something that this service tells
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

// unknown says what is known of a run whose submission was not answered.
func (r *run) unknown() string {
	until := r.spec.Sent.Add(r.spec.Queue + r.spec.Timeout + margin)
	return fmt.Sprintf("%s, so it is not known whether it took the run. It was not sent again, as it might then run twice. If RunPod has it, it ends by itself before %s; look for %s among the requests at https://console.runpod.io/serverless/user/endpoint/%s",
		or(r.spec.Doubt, "RunPod did not answer the submission"), until.UTC().Format("15:04 MST on 2 January"), r.id, r.spec.Endpoint)
}

// Attach implements sandbox.Backend. A handle without data is that of a run
// whose submission was begun.
func (b *Backend) Attach(ctx context.Context, h sandbox.Handle) (sandbox.Run, error) {
	if h.Backend != Name {
		return nil, b.fail("attach", sandbox.ErrGone, "the run is one of engine %q", h.Backend)
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
		return nil, b.fail("attach", sandbox.ErrUnsupported, "the run was begun by another version of Sallyport, which alone can read its handle")
	}
	if !validEndpoint.MatchString(s.Endpoint) || s.Job != "" && !validJob.MatchString(s.Job) {
		return nil, b.fail("attach", sandbox.ErrGone, "the run's handle is damaged")
	}
	return &run{b: b, id: h.ID, api: b.api(s.Endpoint), spec: s}, nil
}
