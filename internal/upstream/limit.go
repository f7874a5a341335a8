package upstream

import (
	"context"
	"sync"
	"time"
)

// A Limit ends a call when the server has had its time. While a person or a client
// is asked for the server, it does not run. A nil Limit never ends.
type Limit struct {
	whole time.Duration // below 1: none
	end   context.CancelCauseFunc

	mu     sync.Mutex
	timer  *time.Timer // of the current run
	left   time.Duration
	since  time.Time // when the current run began
	paused int
}

// WithLimit returns ctx with a limit, or one without end if whole is below 1. The cause
// of its end is an ErrTimeout. The function that ends it must be called.
func WithLimit(ctx context.Context, whole time.Duration) (context.Context, *Limit, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	l := &Limit{whole: whole, left: whole, end: end}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start()
	return ctx, l, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stop()
		l.whole = 0 // who asks for the call may resume later
		end(context.Canceled)
	}
}

// start begins to run. The caller holds l.mu.
func (l *Limit) start() {
	if l.whole <= 0 {
		return
	}
	whole := l.whole
	var timer *time.Timer
	timer = time.AfterFunc(max(l.left, 0), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.timer == timer { // else it was stopped meanwhile
			l.end(timeoutError{whole})
		}
	})
	l.timer, l.since = timer, time.Now()
}

// stop stops the current run, if there is one. The caller holds l.mu.
func (l *Limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
		l.left -= time.Since(l.since)
	}
}

// Pause stops the time until the function that it returns has been called, which
// must be called once.
func (l *Limit) Pause() (resume func()) {
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused++
	l.stop()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.paused--; l.paused == 0 {
			l.start()
		}
	}
}

// again lets the time start anew.
func (l *Limit) again() {
	resume := l.Pause()
	l.mu.Lock()
	l.left = l.whole
	l.mu.Unlock()
	resume()
}
