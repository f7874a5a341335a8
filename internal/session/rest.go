package session

import (
	"context"
	"time"
)

// restSample is how often a resting sandbox is looked at.
const restSample = time.Second

// rest watches a sandbox between executions: background tasks that use more
// than their share of a CPU, averaged since the rest began, are paused until
// the next execution. What their frames make the host do is charged to them.
type rest struct {
	cancel context.CancelFunc
	ended  chan struct{}
	paused bool // valid once ended is closed
}

// idle begins to watch the sandbox, where its engine can measure and pause.
func (b *box) idle(share float64) {
	if b.meter == nil || b.pauser == nil || share < 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &rest{cancel: cancel, ended: make(chan struct{})}
	b.rest = r
	go func() {
		defer close(r.ended)
		r.paused = b.watch(ctx, share)
	}()
}

// watch reports whether it has paused the sandbox.
func (b *box) watch(ctx context.Context, share float64) bool {
	ticker := time.NewTicker(restSample)
	defer ticker.Stop()
	var began time.Time
	var base time.Duration
	for {
		select {
		case <-ctx.Done():
			return false
		case <-b.conn.Dead():
			return false
		case <-ticker.C:
		}
		u, ok := b.usage()
		if !ok {
			return false
		}
		u.CPU += b.conn.Work()
		now := time.Now()
		if began.IsZero() {
			// What the execution left to do in its last moments is not
			// background.
			began, base = now, u.CPU
			continue
		}
		if used := (u.CPU - base).Seconds(); used <= share*now.Sub(began).Seconds() {
			continue
		}
		pauseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTimeout)
		err := b.pauser.Pause(pauseCtx)
		cancel()
		if err != nil {
			b.log.Warn("pausing a busy sandbox failed", "error", err)
			return false
		}
		b.log.Info("paused until the next call: its background tasks used more than their share")
		return true
	}
}

// wake ends the rest, and continues the sandbox if it was paused.
func (b *box) wake(ctx context.Context) error {
	r := b.rest
	b.rest = nil
	if !r.stop() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	return b.pauser.Resume(ctx)
}

// stop ends the watching and says whether the sandbox is paused. A nil rest
// has nothing to end.
func (r *rest) stop() bool {
	if r == nil {
		return false
	}
	r.cancel()
	<-r.ended
	return r.paused
}
