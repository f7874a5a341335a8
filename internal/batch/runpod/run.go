package runpod

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const (
	firstPoll = 250 * time.Millisecond
	// patience is how long RunPod may be out of reach while a run is followed.
	patience = 15 * time.Minute
	// young is how long after its submission a job may be unknown to a part of
	// the service.
	young = 15 * time.Second
	// healthEvery is how often the endpoint is looked at while a job waits.
	healthEvery = 10 * time.Second
	// crashLoop is how long workers may all be unhealthy; crashLoopStarting,
	// while others start in between.
	crashLoop         = 2 * time.Minute
	crashLoopStarting = 6 * time.Minute
	// overdue is how long after its time a job may still be said to run.
	overdue = time.Minute
	// missingEnough is how often in a row RunPod says so before it is believed
	// that it does not know a job.
	missingEnough = 3
	// cancelWait bounds the attempts to cancel.
	cancelWait = 20 * time.Second
	// confirmWait is how long a cancelled job may still be said to go on.
	confirmWait = 2 * time.Minute
)

// run is one job. Only its waiters work on it: Result and Wait
// follow it, one at a time.
type run struct {
	b     *Service
	id    string
	api   *api
	probe bool

	turn  sync.Mutex // held by whoever follows the job
	watch func(batch.Progress)

	mu       sync.Mutex
	spec     runSpec
	searched time.Time // when it was last looked for
	twice    bool      // it was found more than once
	ended    bool
	// Of a run that has ended:
	result batch.Result
	gone   error
	files  []job.File
	answer *job.Answer

	// The follower's own:
	lastStatus string
	died       bool       // no worker survived it, as RunPod says
	first      *jobStatus // what the submission was answered with
	said       string     // the last state that was reported
	began      time.Time
	queued     time.Time // since when it waits
	looked     time.Time // at the endpoint's health
	sick       time.Time // since when all workers are unhealthy
	lastHealth *health
	why        batch.End // why we cancelled it
	whyText    string
	whySince   time.Time
	requeued   int
	missing    int // how often in a row RunPod did not know it
	attempts   []string
	out        [2]joined
	noStream   bool
}

var _ batch.Run = (*run)(nil)

// adopt takes the answer to the submission.
func (r *run) adopt(st *jobStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spec.Job = string(st.ID)
	if final(string(st.Status)) {
		r.first = st
	}
}

// jobID is RunPod's name of the run; empty: not known.
func (r *run) jobID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spec.Job
}

// Handle implements batch.Run.
func (r *run) Handle() sandbox.Handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spec.handle(r.id)
}

// Observe implements batch.Run.
func (r *run) Observe(f func(batch.Progress)) { r.watch = f }

func (r *run) tell(p batch.Progress) {
	if p.State != "" {
		if p.State == r.said {
			p.State = ""
		} else {
			r.said = p.State
		}
	}
	if r.watch != nil && (p.State != "" || p.Running || p.Handle != nil || len(p.Stdout)+len(p.Stderr) > 0) {
		r.watch(p)
	}
}

// Result implements batch.Run.
func (r *run) Result(ctx context.Context) (batch.Result, error) {
	for !r.turn.TryLock() {
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return batch.Result{}, err
		}
	}
	defer r.turn.Unlock()
	if res, err, ok := r.over(); ok {
		return res, err
	}
	return r.follow(ctx)
}

func (r *run) over() (batch.Result, error, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result, r.gone, r.ended
}

// end keeps a result.
func (r *run) end(res batch.Result, gone error) (batch.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result, r.gone, r.ended = res, gone, true
	return res, gone
}

// follow asks until the job has ended.
func (r *run) follow(ctx context.Context) (batch.Result, error) {
	if r.jobID() == "" {
		if !r.search(ctx) {
			if ctx.Err() != nil {
				return batch.Result{}, ctx.Err()
			}
			return r.end(batch.Result{End: batch.Lost, ExitCode: -1, Error: r.unknown()}, nil)
		}
		h := r.Handle()
		r.tell(batch.Progress{Handle: &h})
	}
	if r.queued.IsZero() {
		r.queued = r.spec.Sent
	}
	pause := firstPoll
	for {
		st := r.first
		r.first = nil
		if st == nil {
			var moved bool
			var err error
			if st, moved, err = r.look(ctx); err != nil {
				return r.lost(ctx, err)
			}
			if moved {
				pause = firstPoll
			}
		}
		if final(string(st.Status)) {
			r.lastStatus = string(st.Status)
			return r.conclude(ctx, st)
		}
		if err := r.attend(ctx, st); err != nil {
			return batch.Result{}, err
		}
		if r.why != "" && time.Since(r.whySince) > confirmWait {
			return r.end(batch.Result{End: r.why, ExitCode: -1, Error: r.whyText + "; RunPod took that, and has not confirmed it"}, nil)
		}
		if err := sleep(ctx, jitter(pause)); err != nil {
			return batch.Result{}, err
		}
		pause = min(pause*5/4, r.slowest())
	}
}

// slowest is how seldom a job is asked for, by its age.
func (r *run) slowest() time.Duration {
	switch age := time.Since(r.spec.Sent); {
	case age < 2*time.Minute:
		return 2 * time.Second
	case age < time.Hour:
		return 5 * time.Second
	}
	return 15 * time.Second
}

// look asks how the job is. moved: there was something new.
func (r *run) look(ctx context.Context) (st *jobStatus, moved bool, err error) {
	if r.spec.Streams && !r.noStream {
		answer, t := r.api.ask(ctx, patience, "stream", r.jobID(), nil)
		switch {
		case t == nil:
			var s streamed
			if json.Unmarshal(answer, &s) != nil {
				r.noStream = true
				break
			}
			moved = r.chunks(s)
			if !final(string(s.Status)) {
				return &jobStatus{Status: s.Status}, moved, nil
			}
		case t.status == 400 || t.status == 404 || t.status == 405:
			r.noStream = t.status != 404
		case errors.Is(t.err, errTooLarge): // the result has its output, too
			r.noStream = true
		default:
			return nil, false, t
		}
	}
	answer, t := r.api.ask(ctx, patience, "status", r.jobID(), nil)
	if t != nil {
		if t.status == 404 && time.Since(r.spec.Sent) < young {
			return &jobStatus{Status: inQueue}, false, nil
		}
		if r.missing++; t.status == 404 && r.missing < missingEnough {
			return &jobStatus{Status: word(r.lastStatus)}, false, nil // asked again
		}
		return nil, false, t
	}
	r.missing = 0
	st = &jobStatus{}
	if err := json.Unmarshal(answer, st); err != nil {
		return &jobStatus{Status: word(r.lastStatus)}, moved, nil // asked again
	}
	return st, moved, nil
}

// lost ends a run that can no longer be asked for, or says why it could not
// be asked for now.
func (r *run) lost(ctx context.Context, err error) (batch.Result, error) {
	var t *trouble
	if ctx.Err() != nil {
		return batch.Result{}, ctx.Err()
	}
	if !errors.As(err, &t) || t.status != 404 {
		return batch.Result{}, r.b.explain("result", r.spec.Endpoint, t)
	}
	if r.why != "" { // gone, as it was asked to
		return r.end(batch.Result{End: r.why, ExitCode: -1, Error: r.whyText}, nil)
	}
	switch _, t := r.api.ask(ctx, healthWait, "health", "", nil); {
	case ctx.Err() != nil:
		return batch.Result{}, ctx.Err()
	case t != nil && t.status == 404:
		return r.end(batch.Result{}, r.b.fail("result", sandbox.ErrGone, "RunPod has no endpoint %s any more, and nothing of its runs", r.spec.Endpoint))
	case t != nil:
		return batch.Result{}, r.b.explain("result", r.spec.Endpoint, t)
	}
	text := fmt.Sprintf("RunPod knows nothing of the run any more: it keeps results for %s after the end, and this was asked for %v after the submission",
		map[bool]string{false: "30 minutes", true: "one minute (of a short run)"}[r.spec.Sync], time.Since(r.spec.Sent).Round(time.Second))
	if time.Since(r.spec.Sent) >= r.spec.TTL {
		text = fmt.Sprintf("RunPod has dropped the run: it did not end within %v of its submission", r.spec.TTL)
	}
	if r.lastStatus == "" {
		text += ", or the run is another account's"
	}
	return r.end(batch.Result{}, r.b.fail("result", sandbox.ErrGone, "%s", text))
}

// attend does the work while the job runs: it reports progress,
// and cancels what takes too long.
func (r *run) attend(ctx context.Context, st *jobStatus) error {
	now := time.Now()
	if r.why == "" && r.spec.TTL > 0 && now.Sub(r.spec.Sent) > r.spec.TTL+overdue {
		r.give(ctx, batch.Failed, fmt.Sprintf("RunPod was to drop the run %v after its submission, and still says %q of it: it was cancelled", r.spec.TTL, line(string(st.Status), 40)))
	}
	switch st.Status {
	case inProgress, running:
		if r.began.IsZero() || r.lastStatus == inQueue && r.requeued > 0 {
			r.began = now
			r.tell(batch.Progress{Running: true, State: "running"})
		}
		r.lastStatus = inProgress
		if limit := r.spec.Timeout + margin + overdue; r.why == "" && now.Sub(r.began) > limit {
			r.give(ctx, batch.TimedOut, fmt.Sprintf("the run did not end within %v, and was cancelled", r.spec.Timeout))
		}
	case inQueue:
		if r.lastStatus == inProgress {
			r.requeued++
			r.queued = now
			r.tell(batch.Progress{State: "queued again: RunPod lost the worker, and gives the run to another"})
		}
		r.lastStatus = inQueue
		if r.why != "" {
			break
		}
		if now.Sub(r.looked) >= healthEvery {
			r.looked = now
			if err := r.diagnose(ctx, now); err != nil {
				return err
			}
		}
		if r.why == "" && now.Sub(r.queued) > r.spec.Queue {
			r.give(ctx, batch.Expired, r.expired())
		}
	}
	return ctx.Err()
}

// expired says why a job never began.
func (r *run) expired() string {
	what := "the run"
	if r.probe {
		what = "a job without code"
	}
	text := fmt.Sprintf("no worker of endpoint %s took %s within %v, so it was cancelled", r.spec.Endpoint, what, r.spec.Queue.Round(time.Second))
	h := r.lastHealth
	switch {
	case h == nil:
		return text
	case h.Workers.Unhealthy > 0 && !h.alive():
		return text + "; its workers are unhealthy: " + unhealthyRemedy(r.spec.Endpoint)
	case h.Workers.Throttled > 0 && !h.alive():
		return text + "; RunPod has no free machine of the kind that the endpoint asks for: allow more GPU types or data centers (`sallyport deploy runpod`)"
	case !h.alive() && h.Workers.Initializing == 0:
		return text + "; it has no workers: check that its largest number of workers is not 0, and the balance of the account"
	}
	return text + "; " + crew(h) + fmt.Sprintf(", %.0f jobs wait", h.Jobs.InQueue)
}

// diagnose looks at the endpoint of a job that waits.
func (r *run) diagnose(ctx context.Context, now time.Time) error {
	h, err := r.b.health(ctx, r.api, 0)
	if err != nil {
		return ctx.Err() // it only explains the wait
	}
	r.lastHealth = h
	r.tell(batch.Progress{State: "queued; " + crew(h)})
	w := h.Workers
	if w.Unhealthy == 0 || h.alive() {
		r.sick = time.Time{}
		return nil
	}
	if r.sick.IsZero() {
		r.sick = now
	}
	limit := crashLoop
	if w.Initializing+w.Throttled > 0 {
		limit = crashLoopStarting
	}
	if now.Sub(r.sick) >= limit {
		r.give(ctx, batch.Failed, fmt.Sprintf("the run never began: for %v every worker of endpoint %s was unhealthy (%s), they start and crash. It was cancelled. %s",
			now.Sub(r.sick).Round(time.Second), r.spec.Endpoint, crew(h), capital(unhealthyRemedy(r.spec.Endpoint))))
	}
	return nil
}

// give cancels the job for a reason of our own. It may have ended meanwhile:
// the next look tells.
func (r *run) give(ctx context.Context, why batch.End, text string) {
	r.why, r.whyText, r.whySince = why, text, time.Now()
	if err := r.cancel(ctx); err != nil && ctx.Err() == nil {
		r.b.log.Warn("runpod: cancelling a run", "run", r.id, "error", err)
		r.why, r.whyText = "", "" // tried again
	}
}

func (r *run) cancel(ctx context.Context) error {
	if _, t := r.api.ask(ctx, cancelWait, "cancel", r.jobID(), nil); t != nil && t.status != 404 {
		return r.b.explain("cancel", r.spec.Endpoint, t)
	}
	return nil
}

// Cancel implements batch.Run.
func (r *run) Cancel(ctx context.Context) error {
	if _, _, ok := r.over(); ok {
		return nil
	}
	if r.jobID() == "" && !r.search(ctx) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return r.b.fail("cancel", sandbox.ErrUnsupported, "%s", r.unknown())
	}
	return r.cancel(ctx)
}

// Destroy implements batch.Run. RunPod removes what a run left by itself.
func (r *run) Destroy(ctx context.Context) error {
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), cancelWait+5*time.Second)
	defer end()
	return r.Cancel(ctx)
}

// chunks takes what a stream brought.
func (r *run) chunks(s streamed) (moved bool) {
	var p batch.Progress
	for _, c := range s.Stream {
		var chunk job.Chunk
		if json.Unmarshal(c.Output, &chunk) != nil {
			continue // some other worker's
		}
		moved = true
		if st := chunk.Started; st != nil && st.Attempt != "" && len(r.attempts) < 100 && !slices.Contains(r.attempts, st.Attempt) {
			r.attempts = append(r.attempts, st.Attempt)
			if len(r.attempts) > 1 {
				// Another worker's output does not continue the first one's.
				r.out = [2]joined{{stopped: true}, {stopped: true}}
			}
			p.Running = true
		}
		p.Stdout = append(p.Stdout, r.out[0].add(chunk.Stdout, chunk.At, r.spec.OutputBytes)...)
		p.Stderr = append(p.Stderr, r.out[1].add(chunk.Stderr, chunk.At, r.spec.OutputBytes)...)
	}
	if p.Running {
		if r.began.IsZero() {
			r.began = time.Now()
		}
		r.lastStatus, p.State = inProgress, "running"
	}
	r.tell(p)
	return moved
}

// joined puts a stream together, as far as nothing of it was lost.
type joined struct {
	next    int64
	stopped bool
}

func (j *joined) add(text string, at, limit int64) []byte {
	if text == "" || j.stopped {
		return nil
	}
	if at != j.next || j.next+int64(len(text)) > limit {
		j.stopped = true
		return nil
	}
	j.next += int64(len(text))
	return []byte(text)
}
