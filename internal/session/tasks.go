package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// taskBase is how long a guest may work on a task of the host, and taskRate
	// is how many bytes it must move in each second after that.
	taskBase = 5 * time.Second
	taskRate = 8 << 20
	// taskWait bounds the time that the host itself works on a task.
	taskWait = 2 * time.Minute
)

// taskTime returns how long a guest may take to move that many bytes.
func taskTime(bytes int64) time.Duration {
	return taskBase + time.Duration(float64(bytes)/taskRate*float64(time.Second))
}

// errSlow means that a guest took too long for a task. What it moved until then
// may be used.
var errSlow = errors.New("the sandbox did not move its files in time")

// ask runs a task in the guest. answer serves its calls, one at a time. limit
// bounds the time that the guest takes, not counting answer. A guest that does
// not finish in time is interrupted, and then destroyed: the error is errSlow.
func (b *instance) ask(ctx context.Context, grace, limit time.Duration, task string, answer func(wire.Call) (any, error)) error {
	e := wire.Exec{Task: task}
	if b.reseed {
		e.Reseed, b.reseed = entropy(), false
	}
	h := &taskHandler{answer: answer}
	began := time.Now()
	running, err := b.conn.Start(e, h)
	if err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	gaveUp := ctx.Done()
	for !ended(running) {
		var cause error
		select {
		case <-running.Done():
			continue
		case <-gaveUp:
			// The task fails at its next call. Until then it is delayed by the
			// session's own code, which must not die because the caller left.
			gaveUp = nil
			h.refuse(context.Cause(ctx))
			continue
		case <-timer.C:
			took := time.Since(began)
			if left := min(limit-took+h.hostTime(), limit+taskWait-took); left > 0 {
				timer.Reset(left)
				continue
			}
			cause = errSlow
		case <-b.life:
			cause = ErrClosed
		}
		h.refuse(cause)
		if b.interrupter == nil || !b.interrupt(ctx, grace, running) {
			b.destroy()
			<-running.Done()
		}
		return cause
	}
	outcome, err := running.Result()
	switch {
	case err != nil:
		return fmt.Errorf("the sandbox died: %w", err)
	case h.err() != nil:
		return h.err()
	case outcome.Status == wire.StatusOK:
		return nil
	case outcome.Error != nil:
		return fmt.Errorf("inside the sandbox, perhaps because its code changed something there: %s: %s", wire.OneLine(outcome.Error.Type), wire.OneLine(outcome.Error.Message))
	}
	return fmt.Errorf("inside the sandbox: %s", outcome.Status)
}

// unexpected returns the error for a call that the task must not make.
func unexpected(call wire.Call) error {
	return fmt.Errorf("the sandbox asked for %s", wire.OneLine(call.Method))
}

// taskHandler serves a task. It ignores what user code writes meanwhile.
type taskHandler struct {
	answer func(wire.Call) (any, error)
	turn   sync.Mutex // held while a call is answered

	mu      sync.Mutex
	failed  error         // on the host's side
	worked  time.Duration // on answers
	working time.Time     // since when on the current answer; zero: on none
}

func (h *taskHandler) Output(wire.Stream, []byte) {}

func (h *taskHandler) Call(_ context.Context, call wire.Call) (json.RawMessage, error) {
	h.turn.Lock()
	defer h.turn.Unlock()
	refused := &wire.CallError{Kind: wire.KindCancelled, Message: "the host gave up"}
	if h.err() != nil {
		return nil, refused
	}
	h.mu.Lock()
	h.working = time.Now()
	h.mu.Unlock()
	v, err := h.answer(call)
	h.mu.Lock()
	h.worked += time.Since(h.working)
	h.working = time.Time{}
	h.mu.Unlock()
	if err == nil {
		var data []byte
		if data, err = json.Marshal(v); err == nil {
			return data, nil
		}
	}
	h.refuse(err)
	return nil, refused
}

// hostTime returns how long the host has worked on answers.
func (h *taskHandler) hostTime() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.working.IsZero() {
		return h.worked
	}
	return h.worked + time.Since(h.working)
}

// refuse makes the task's calls fail from now on.
func (h *taskHandler) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = err
	}
}

func (h *taskHandler) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}
