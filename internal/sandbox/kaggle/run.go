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

	"sallyport/internal/sandbox"
)

const (
	// appearWithin is how long a script may take to be seen of which it is not
	// known whether it was pushed; vanishWithin, one that was.
	appearWithin = 2 * time.Minute
	vanishWithin = 30 * time.Second
	// unreachable is how long Kaggle may be out of reach.
	unreachable = 30 * time.Minute
	// overdue is how long after its limit a session is taken for running still.
	overdue        = 15 * time.Minute
	destroyTimeout = 60 * time.Second
	// slowest is how much less often than at first a state is asked for.
	slowest = 8
)

// run is one script at Kaggle.
type run struct {
	backend *Backend
	id      string

	turn chan struct{} // holds one token: whoever has it follows the run

	mu       sync.Mutex
	h        handle
	observe  func(sandbox.Progress)
	outcome  *outcome // nil: not known yet
	state    string   // the last that was told
	running  bool
	gone     bool // Destroy was called
	goneCh   chan struct{}
	deleted  bool
	notified sync.Mutex // held while observe runs
}

var (
	_ sandbox.Run           = (*run)(nil)
	_ sandbox.BatchResulter = (*run)(nil)
	_ sandbox.Observer      = (*run)(nil)
	_ sandbox.Canceler      = (*run)(nil)
	_ sandbox.Fetcher       = (*run)(nil)
)

// outcome is how a run ended, and what can be fetched of it.
type outcome struct {
	result sandbox.BatchResult
	files  []wantedFile
	// left: something of it is at Kaggle alone.
	left bool
}

func newRun(b *Backend, id string, h *handle) *run {
	r := &run{backend: b, id: id, h: *h, turn: make(chan struct{}, 1), goneCh: make(chan struct{})}
	r.turn <- struct{}{}
	return r
}

// Handle implements sandbox.Run.
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

// Observe implements sandbox.Observer.
func (r *run) Observe(f func(sandbox.Progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe = f
}

// tell tells the observer. Nobody who calls it holds mu.
func (r *run) tell(p sandbox.Progress) {
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

// Result implements sandbox.BatchResulter.
func (r *run) Result(ctx context.Context) (sandbox.BatchResult, error) {
	o, err := r.end(ctx)
	if err != nil {
		return sandbox.BatchResult{}, err
	}
	return o.result, nil
}

// Wait implements sandbox.Run.
func (r *run) Wait(ctx context.Context) (sandbox.Exit, error) {
	o, err := r.end(ctx)
	switch {
	case errors.Is(err, sandbox.ErrGone):
		return sandbox.Exit{Code: -1, Reason: sandbox.Destroyed, Detail: "it is not followed any more"}, nil
	case err != nil:
		return sandbox.Exit{}, err
	case o.result.End == sandbox.BatchExited:
		return sandbox.Exit{Code: o.result.ExitCode, Reason: sandbox.Exited}, nil
	}
	return sandbox.Exit{Code: -1, Reason: sandbox.EngineDied, Detail: o.result.Error}, nil
}

// known is the outcome, if there is one. ErrGone: there will be none.
func (r *run) known() (*outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcome == nil && r.gone {
		return nil, fail("result", sandbox.ErrGone, errors.New("the run was destroyed"))
	}
	return r.outcome, nil
}

// end follows the run to its end, unless somebody else does.
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

// follow asks for the run's state until it has ended.
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
			r.tell(sandbox.Progress{State: "Kaggle cannot be reached; the run may go on"})
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

// step is one answer of Kaggle about the state.
func (r *run) step(ctx context.Context, s statusAnswer, live *follower, now time.Time) (*outcome, error) {
	h := r.now()
	switch s.Status {
	case "", statusQueued, statusNew:
		// The script does not run the code from then on.
		if now.After(h.NotAfter.Add(lateness)) {
			return &outcome{result: sandbox.BatchResult{
				End: sandbox.BatchExpired, ExitCode: -1,
				Error: fmt.Sprintf("Kaggle did not begin the run within %s; should it begin now, the code will not be run", h.NotAfter.Sub(h.Pushed).Round(time.Second)),
				Notes: h.Notes,
			}}, nil
		}
		r.tell(sandbox.Progress{State: "queued at Kaggle"})
	case statusRunning, statusCancelRequested:
		if now.After(h.Until.Add(overdue)) {
			return &outcome{left: true, result: sandbox.BatchResult{
				End: sandbox.BatchTimedOut, ExitCode: -1, Notes: h.Notes,
				Error: "Kaggle still calls the session running, long after its time limit: " + h.URL,
			}}, nil
		}
		r.tell(sandbox.Progress{State: "running at Kaggle"})
		live.start(ctx)
	case statusComplete, statusError, statusCancelled:
		live.stop()
		o, err := r.collect(ctx, s)
		if o != nil {
			live.rest(&o.result)
		}
		return o, err
	default:
		r.tell(sandbox.Progress{State: "at Kaggle: " + clean(s.Status, nil)})
	}
	return nil, nil
}

// unseen is the outcome of a run whose script Kaggle has not had for so long;
// nil while it may yet appear.
func (r *run) unseen(since time.Duration) *outcome {
	h := r.now()
	if h.Unsure {
		if since < min(appearWithin, 60*r.backend.opts.Poll) {
			r.tell(sandbox.Progress{State: "the push was not answered; looking for it at Kaggle"})
			return nil
		}
		return &outcome{result: sandbox.BatchResult{
			End: sandbox.BatchFailed, ExitCode: -1,
			Error: "the network failed while the run was being handed over, and Kaggle has no such run: the code was not run. Try again",
		}}
	}
	if since < min(vanishWithin, 15*r.backend.opts.Poll) {
		return nil
	}
	return &outcome{result: sandbox.BatchResult{
		End: sandbox.BatchLost, ExitCode: -1, Notes: h.Notes,
		Error: "Kaggle has no such run any more: " + h.URL + " was deleted, or belongs to another account than that of the credentials",
	}}
}

// sure notes that Kaggle has the run.
func (r *run) sure() {
	r.mu.Lock()
	was := r.h.Unsure
	r.h.Unsure = false
	h := r.handle()
	r.mu.Unlock()
	if was {
		r.tell(sandbox.Progress{Handle: &h})
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

// Cancel implements sandbox.Canceler: Kaggle cannot.
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
			h.Until = latest // it has begun, so its time runs
		}
	}
	return fail("cancel", sandbox.ErrUnsupported, fmt.Errorf("no call of Kaggle's ends a session. It goes on until %s at the latest, and counts against your quota; to end it now, open %s and stop it there",
		h.Until.Local().Format("2006-01-02 15:04"), h.URL))
}

// status asks for a session's state.
func (b *Backend) status(ctx context.Context, about kernelRequest) (statusAnswer, error) {
	var s statusAnswer
	err := b.client.call(ctx, callStatus, about, &s)
	s.Status = strings.ToUpper(s.Status) // older forms of the API have complete, running
	return s, err
}

func ended(status string) bool {
	return status == statusComplete || status == statusError || status == statusCancelled
}

// Destroy implements sandbox.Run: it removes the script of a run that has
// ended. The session of one that has not would go on, where nobody sees it:
// such a run stays, and the sweeper removes it later.
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
	case o != nil && o.result.End == sandbox.BatchExpired:
		// Should it begin, it will find that it is too late, and end.
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

// remove deletes a script. One that is not there is no error.
func (b *Backend) remove(ctx context.Context, user, slug string) error {
	var answer struct {
		ErrorMessage string `json:"errorMessage"`
	}
	err := b.client.call(ctx, callDelete, kernelRequest{UserName: user, KernelSlug: slug}, &answer)
	if absent(err) {
		return nil
	}
	if err == nil && answer.ErrorMessage != "" {
		err = errors.New("not deleted by Kaggle: " + clean(answer.ErrorMessage, nil))
	}
	return err
}
