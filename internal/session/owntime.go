package session

import (
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/session/usage"
)

// ownTime measures the agent's own time: the wall time during which no call
// to the host was pending, plus, while one was, the processor time that the
// host measured for the sandbox, at most that wall time. A thread that spins
// during a pending call is charged; parallel numpy is not charged twice.
//
// Calls only move a counter. The processor time is read when the owner settles
// an interval, ten times a second, because measuring at each call would cost
// more than the call. Within one interval, processor time is first counted
// against the wall time without a call. What is charged is thus a lower bound:
// an agent is never charged for time that it may not have used.
type ownTime struct {
	mu           sync.Mutex
	own          time.Duration // settled
	at           time.Time     // end of the last settled interval
	cpu          time.Duration // measured at that time; negative is unknown
	pending      int           // calls that the host is answering now
	pendingSince time.Time     // when pending became positive
	pendingWall  time.Duration // finished pending stretches of this interval
}

func newOwnTime(now time.Time) *ownTime { return &ownTime{at: now, cpu: usage.UnknownCPU} }

// callBegins records that the host has begun to answer a call.
func (o *ownTime) callBegins() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending == 0 {
		o.pendingSince = time.Now()
	}
	o.pending++
}

// callEnds records that a call has been answered.
func (o *ownTime) callEnds() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending--
	if o.pending == 0 {
		o.pendingWall += time.Since(o.pendingSince)
	}
}

// settle ends an interval and returns the own time so far. cpu is the sandbox's
// processor time since its start, or usage.UnknownCPU where it cannot be
// measured. In that case, time during a pending call is free, and only the
// limit on the whole run bounds it.
func (o *ownTime) settle(now time.Time, cpu time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	wall := max(0, now.Sub(o.at))
	waiting := o.pendingWall
	if o.pending > 0 {
		waiting += now.Sub(o.pendingSince)
		o.pendingSince = now
	}
	waiting = min(max(0, waiting), wall)
	working := wall - waiting
	if cpu >= 0 && o.cpu >= 0 {
		working += min(waiting, max(0, cpu-o.cpu-working))
	}
	o.own += working
	o.at, o.cpu, o.pendingWall = now, cpu, 0
	return o.own
}
