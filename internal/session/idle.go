package session

import (
	"context"
	"sync"
	"time"
)

// idleSample is the interval at which an idle sandbox is measured.
const idleSample = time.Second

// throttle watches an idle sandbox. Background tasks that use more than their
// share of a CPU, averaged over the idle time, are paused until the next
// execution. Work that their frames cause on the host is charged to them.
//
// It is a timer, not a goroutine: each execution starts and stops one, and
// must not wait for a goroutine to end.
type throttle struct {
	instance *instance
	share    float64

	mu      sync.Mutex // held while the sandbox is measured
	timer   *time.Timer
	stopped bool
	paused  bool
	began   time.Time     // of the first measurement; zero: there was none
	base    time.Duration // the processor time then
}

// startIdle starts watching the sandbox, if its engine can measure and pause
// it.
func (b *instance) startIdle(share float64) {
	if b.meter == nil || b.pauser == nil || share < 0 {
		return
	}
	r := &throttle{instance: b, share: share}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(idleSample, r.sample)
	b.throttle = r
}

// sample measures the sandbox and pauses it if it used too much.
func (r *throttle) sample() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || r.instance.dead() {
		return
	}
	var again bool
	if r.paused, again = r.check(); again {
		r.timer.Reset(idleSample)
	}
}

// check reports whether it has paused the sandbox, and whether to go on
// measuring.
func (r *throttle) check() (paused, again bool) {
	b := r.instance
	u, ok := b.usage()
	if !ok {
		return false, false
	}
	u.CPU += b.conn.Work()
	now := time.Now()
	if r.began.IsZero() {
		// Work that the execution left in its last moments is not background.
		r.began, r.base = now, u.CPU
		return false, true
	}
	if used := (u.CPU - r.base).Seconds(); used <= r.share*now.Sub(r.began).Seconds() {
		return false, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	if err := b.pauser.Pause(ctx); err != nil {
		b.log.Warn("pausing a busy sandbox failed", "error", err)
		return false, false
	}
	b.log.Info("paused until the next call: its background tasks used more than their share")
	return true, false
}

// unpause stops watching, and resumes the sandbox if it was paused.
func (b *instance) unpause(ctx context.Context) error {
	r := b.throttle
	b.throttle = nil
	if !r.stop() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	return b.pauser.Resume(ctx)
}

// stop stops watching and reports whether the sandbox is paused. It waits for a
// measurement in progress. It may be called on nil.
func (r *throttle) stop() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.timer.Stop()
	return r.paused
}
