package kaggle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
)

const (
	// appearWithin is how long a script may take to appear whose push was not
	// answered; vanishWithin, one whose push was.
	appearWithin = 2 * time.Minute
	vanishWithin = 30 * time.Second
	// unreachable is how long Kaggle may be out of reach.
	unreachable = 30 * time.Minute
	// overdue is how long after its limit a session still counts as running.
	overdue        = 15 * time.Minute
	destroyTimeout = 60 * time.Second
	// slowest is the factor by which the interval of requests grows.
	slowest = 8
)

// run is one script at Kaggle.
type run struct {
	backend *Service
	id      string

	turn chan struct{} // holds one token: its holder follows the run

	mu       sync.Mutex
	h        handle
	observe  func(batch.Progress)
	outcome  *outcome // nil: not known yet
	state    string   // the last one reported
	running  bool
	gone     bool // Destroy was called
	goneCh   chan struct{}
	deleted  bool
	notified sync.Mutex // held while observe runs
}

var _ batch.Run = (*run)(nil)

// outcome is how a run ended, and which files can be fetched.
type outcome struct {
	result batch.Result
	files  []wantedFile
	// left: some of its output is only at Kaggle.
	left bool
}

func newRun(b *Service, id string, h *handle) *run {
	r := &run{backend: b, id: id, h: *h, turn: make(chan struct{}, 1), goneCh: make(chan struct{})}
	r.turn <- struct{}{}
	return r
}

// Handle implements batch.Run.
func (r *run) Handle() sandbox.Handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handle()
}

// handle is Handle for whoever holds mu.
func (r *run) handle() sandbox.Handle {
	data, _ := json.Marshal(r.h) // of strings, numbers and times: cannot fail
	return sandbox.Handle{Backend: name, Version: handleVersion, ID: r.id, Data: data}
}

// Observe implements batch.Run.
func (r *run) Observe(f func(batch.Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe = f
}

// tell reports a change to the observer. Callers do not hold mu.
func (r *run) tell(p batch.Progress) {
	r.notified.Lock()
	defer r.notified.Unlock()
	r.mu.Lock()
	f := r.observe
	if p.State == r.state {
		p.State = ""
	} else if p.State != "" {
		r.state = p.State
	}
	if r.running {
		p.Running = false
	}
	r.running = r.running || p.Running
	r.mu.Unlock()
	if f != nil && (p.State != "" || p.Running || len(p.Stdout) > 0 || len(p.Stderr) > 0 || p.Handle != nil) {
		f(p)
	}
}

// Result implements batch.Run.
func (r *run) Result(ctx context.Context) (batch.Result, error) {
	o, err := r.end(ctx)
	if err != nil {
		return batch.Result{}, err
	}
	return o.result, nil
}

// known returns the outcome, if there is one. ErrGone means that there will be
// none.
func (r *run) known() (*outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcome == nil && r.gone {
		return nil, fail("result", sandbox.ErrGone, errors.New("the run was destroyed"))
	}
	return r.outcome, nil
}

// end follows the run to its end, unless another caller does.
func (r *run) end(ctx context.Context) (*outcome, error) {
	if o, err := r.known(); o != nil || err != nil {
		return o, err
	}
	select {
	case <-r.turn:
	case <-r.goneCh:
		return r.known()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { r.turn <- struct{}{} }()
	if o, err := r.known(); o != nil || err != nil {
		return o, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-r.goneCh:
			cancel()
		case <-ctx.Done():
		}
	})
	o, err := r.follow(ctx)
	if err != nil {
		if known, gone := r.known(); gone != nil {
			return known, gone
		}
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcome = o
	return o, nil
}

// follow requests the run's state until it has ended.
func (r *run) follow(ctx context.Context) (*outcome, error) {
	live := &follower{run: r}
	defer live.stop()
	pause := r.backend.opts.Poll
	var unanswered, unseen time.Time // since when, if so
	for {
		s, err := r.backend.status(ctx, r.about())
		now := time.Now()
		var answer *apiError
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case absent(err):
			if unseen.IsZero() {
				unseen = now
			}
			if o := r.unseen(now.Sub(unseen)); o != nil {
				return o, nil
			}
		case errors.As(err, &answer) && answer.status == http.StatusUnauthorized, errors.Is(err, errNoCredentials):
			return nil, fail("result", nil, fmt.Errorf("%w. The run goes on: %s", explain(err), r.page()))
		case err != nil:
			if unanswered.IsZero() {
				unanswered = now
			}
			if now.Sub(unanswered) > unreachable {
				return nil, fail("result", nil, fmt.Errorf("%w. The run may go on: %s", err, r.page()))
			}
			r.tell(batch.Progress{State: "Kaggle cannot be reached; the run may go on"})
		default:
			unanswered, unseen = time.Time{}, time.Time{}
			r.sure()
			if o, err := r.step(ctx, s, live, now); o != nil || err != nil {
				return o, err
			}
		}
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
		pause = min(pause*5/4, slowest*r.backend.opts.Poll)
	}
}

// step handles one answer about the state.
func (r *run) step(ctx context.Context, s statusAnswer, live *follower, now time.Time) (*outcome, error) {
	h := r.now()
	switch s.Status {
	case "", statusQueued, statusNew:
		// The script does not run the code from then on.
		if now.After(h.NotAfter.Add(lateness)) {
			return &outcome{result: batch.Result{
				End: batch.Expired, ExitCode: -1,
				Error: fmt.Sprintf("Kaggle did not begin the run within %s; if it begins now, it will not run the code", h.NotAfter.Sub(h.Pushed).Round(time.Second)),
				Notes: h.Notes,
			}}, nil
		}
		r.tell(batch.Progress{State: "queued at Kaggle"})
	case statusRunning, statusCancelRequested:
		if now.After(h.Until.Add(overdue)) {
			return &outcome{left: true, result: batch.Result{
				End: batch.TimedOut, ExitCode: -1, Notes: h.Notes,
				Error: "Kaggle still reports the session as running, long after its time limit: " + h.URL,
			}}, nil
		}
		r.tell(batch.Progress{State: "running at Kaggle"})
		live.start(ctx)
	case statusComplete, statusError, statusCancelled:
		live.stop()
		o, err := r.collect(ctx, s)
		if o != nil {
			live.rest(&o.result)
		}
		return o, err
	default:
		r.tell(batch.Progress{State: "at Kaggle: " + clean(s.Status, nil)})
	}
	return nil, nil
}

// unseen returns the outcome of a run whose script Kaggle has not had for so
// long; nil while it may still appear.
func (r *run) unseen(since time.Duration) *outcome {
	h := r.now()
	if h.Unsure {
		if since < min(appearWithin, 60*r.backend.opts.Poll) {
			r.tell(batch.Progress{State: "the push was not answered; searching for it at Kaggle"})
			return nil
		}
		return &outcome{result: batch.Result{
			End: batch.Failed, ExitCode: -1,
			Error: "the network failed while the run was being submitted, and Kaggle has no such run: the code was not run. Try again",
		}}
	}
	if since < min(vanishWithin, 15*r.backend.opts.Poll) {
		return nil
	}
	return &outcome{result: batch.Result{
		End: batch.Lost, ExitCode: -1, Notes: h.Notes,
		Error: "Kaggle has no such run any more: " + h.URL + " was deleted, or belongs to another account than that of the credentials",
	}}
}

// sure records that Kaggle has the run.
func (r *run) sure() {
	r.mu.Lock()
	was := r.h.Unsure
	r.h.Unsure = false
	h := r.handle()
	r.mu.Unlock()
	if was {
		r.tell(batch.Progress{Handle: &h})
	}
}

func (r *run) now() handle {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.h
}

func (r *run) page() string { return r.now().URL }

func (r *run) about() kernelRequest {
	h := r.now()
	return kernelRequest{UserName: h.User, KernelSlug: h.Slug}
}

// Cancel implements batch.Run: Kaggle cannot.
func (r *run) Cancel(ctx context.Context) error {
	o, err := r.known()
	if err != nil {
		return err
	}
	if o != nil {
		return nil
	}
	h := r.now()
	if s, err := r.backend.status(ctx, r.about()); err == nil {
		if ended(s.Status) {
			return nil
		}
		if latest := time.Now().Add(h.Until.Sub(h.NotAfter)); s.Status == statusRunning && latest.Before(h.Until) {
			h.Until = latest // it has begun, so its time is running
		}
	}
	return fail("cancel", sandbox.ErrUnsupported, fmt.Errorf("a call that ends a session does not exist at Kaggle. The run goes on until %s at the latest, and counts against your quota; to end it now, open %s and stop it there",
		h.Until.Local().Format("2006-01-02 15:04"), h.URL))
}

// status requests a session's state.
func (b *Service) status(ctx context.Context, about kernelRequest) (statusAnswer, error) {
	var s statusAnswer
	err := b.client.call(ctx, callStatus, about, &s)
	s.Status = strings.ToUpper(s.Status) // older forms of the API have complete, running
	return s, err
}

func ended(status string) bool {
	return status == statusComplete || status == statusError || status == statusCancelled
}

// Destroy implements batch.Run: it removes the script of a run that has ended.
// Without its script a running session would go on invisibly, so it keeps that
// script, which Sweep removes later.
func (r *run) Destroy(ctx context.Context) error {
	r.mu.Lock()
	if !r.gone {
		r.gone = true
		close(r.goneCh)
	}
	o, h, done := r.outcome, r.h, r.deleted
	r.mu.Unlock()
	if done || h.Keep || o != nil && o.left {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	s, err := r.backend.status(ctx, r.about())
	switch {
	case absent(err):
		return nil
	case err != nil:
		return fail("destroy", nil, fmt.Errorf("%w. %s is still there", explain(err), h.URL))
	case ended(s.Status):
	case o != nil && o.result.End == batch.Expired:
		// If it begins, the script finds that it is too late, and ends.
	default:
		r.backend.opts.Log.Info("a run goes on at Kaggle", "run", r.id, "where", h.URL, "until", h.Until)
		return nil
	}
	if err := r.backend.remove(ctx, h.User, h.Slug); err != nil {
		return fail("destroy", nil, fmt.Errorf("%w. %s is still there", explain(err), h.URL))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted = true
	return nil
}

// remove deletes a script. A missing script is not an error.
func (b *Service) remove(ctx context.Context, user, slug string) error {
	var answer struct {
		ErrorMessage string `json:"errorMessage"`
	}
	err := b.client.call(ctx, callDelete, kernelRequest{UserName: user, KernelSlug: slug}, &answer)
	if absent(err) {
		return nil
	}
	if err == nil && answer.ErrorMessage != "" {
		err = errors.New("Kaggle did not delete it: " + clean(answer.ErrorMessage, nil))
	}
	return err
}
