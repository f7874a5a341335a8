// Package places shares the places to run code between clients: in order of
// arrival within a client, and by turns between clients that wait. The next turn is
// that of the client whose last one is longest ago, so that a hundred executions of
// one delay the first one of another until one place is free.
package places

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Limits bound the executions that run and that wait, of all clients and of each.
// Zero is no limit.
type Limits struct {
	Running, Queued             int
	ClientRunning, ClientQueued int
}

// A Queue has the places. It is safe for concurrent use, as are its lines.
type Queue struct {
	limits Limits

	mu              sync.Mutex
	running, inside int
	lines           []*Line // in which someone waits, by served: the first one is next
	clock           int     // 2 more for each turn
}

// A Line is one client's.
type Line struct {
	queue *Queue

	// Guarded by the queue's lock.
	running, inside int
	served          int // the clock at its last turn; of a new client, just before the turn that came last
	arrived         int
	waiting         []*Place // in the order of their arrival
}

// A Place is one execution's, from its arrival to its end. The zero value has not
// arrived.
type Place struct {
	line   *Line
	number int           // in the order of arrival in the line
	turn   chan struct{} // closed when it runs; nil: it never had to wait
	state  state
}

type state int

// The states of a Place.
const (
	outside state = iota
	inside        // it runs no code, and does not wait for its turn to
	waiting
	running
)

// New returns a queue with these limits.
func New(limits Limits) *Queue { return &Queue{limits: limits} }

// Line returns the line of one more client.
func (q *Queue) Line() *Line {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &Line{queue: q, served: q.clock - 1}
}

// Enter notes the arrival of an execution, or returns why no more may wait. Where
// all clients together have as many as may wait, a client that has none inside may
// still bring one. The caller calls Leave.
func (l *Line) Enter(p *Place) error {
	q := l.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case full(l.inside, q.limits.ClientRunning, q.limits.ClientQueued):
		return fmt.Errorf("%d executions of this client run or wait, as many as may (policy.executions.perClient.queued): nothing was run. Wait for a result before the next call, or do more in one call", l.inside)
	case l.inside > 0 && full(q.inside, q.limits.Running, q.limits.Queued):
		return fmt.Errorf("%d executions of all clients run or wait, as many as may (policy.executions.queued): nothing was run. Try again in a while", q.inside)
	}
	l.inside++
	q.inside++
	l.arrived++
	*p = Place{line: l, number: l.arrived, state: inside}
	return nil
}

// full reports whether n is all that may run and wait.
func full(n, running, queued int) bool { return queued > 0 && n >= running+queued }

// Wait waits for the turn to run code, until ctx is done. Done ends the turn. A nil
// Place needs none.
func (p *Place) Wait(ctx context.Context) error {
	if p == nil || p.Try() {
		return nil
	}
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		p.Done()
		return context.Cause(ctx)
	}
}

// Line returns whose Place it is; nil of a nil Place.
func (p *Place) Line() *Line {
	if p == nil {
		return nil
	}
	return p.line
}

// Try reports whether the turn has come. If not, the Place is in its line from then
// on, and the caller calls Wait or Done.
func (p *Place) Try() bool {
	q := p.line.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case p.state == inside && q.free() && p.line.free(): // then no one waits in the line
		p.runs()
	case p.state == inside:
		p.state, p.turn = waiting, make(chan struct{})
		l := p.line
		i := slices.IndexFunc(l.waiting, func(other *Place) bool { return other.number > p.number })
		if i < 0 {
			i = len(l.waiting)
		}
		if l.waiting = slices.Insert(l.waiting, i, p); len(l.waiting) == 1 {
			q.wait(l)
		}
	}
	return p.state == running
}

// free reports whether one more may run; q.mu is held for this and what follows.
func (q *Queue) free() bool { return q.limits.Running <= 0 || q.running < q.limits.Running }

func (l *Line) free() bool {
	most := l.queue.limits.ClientRunning
	return most <= 0 || l.running < most
}

// wait has a line wait after those that were served before it.
func (q *Queue) wait(l *Line) {
	i := slices.IndexFunc(q.lines, func(other *Line) bool { return other.served > l.served })
	if i < 0 {
		i = len(q.lines)
	}
	q.lines = slices.Insert(q.lines, i, l)
}

func (p *Place) runs() {
	p.state = running
	p.line.queue.clock += 2
	p.line.served = p.line.queue.clock
	p.line.running++
	p.line.queue.running++
}

// next gives the free places to those whose turn is next.
func (q *Queue) next() {
	for q.free() {
		i := slices.IndexFunc(q.lines, (*Line).free)
		if i < 0 {
			return
		}
		l := q.lines[i]
		p := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		q.lines = slices.Delete(q.lines, i, i+1)
		p.runs()
		if len(l.waiting) > 0 {
			q.wait(l)
		}
		close(p.turn)
	}
}

// Done ends the turn, or the wait for it. It may be called more than once, and on a
// nil Place.
func (p *Place) Done() {
	if p == nil || p.line == nil {
		return
	}
	q := p.line.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	p.done()
}

func (p *Place) done() {
	l := p.line
	q := l.queue
	switch p.state {
	case running:
		l.running--
		q.running--
	case waiting:
		l.waiting = slices.DeleteFunc(l.waiting, func(other *Place) bool { return other == p })
		if len(l.waiting) == 0 {
			q.lines = slices.DeleteFunc(q.lines, func(other *Line) bool { return other == l })
		}
	default:
		return
	}
	p.state = inside
	q.next()
}

// Leave notes the end of an execution that has arrived. It may be called more than
// once.
func (p *Place) Leave() {
	if p.line == nil {
		return
	}
	q := p.line.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	p.done()
	if p.state == inside {
		p.state = outside
		p.line.inside--
		q.inside--
	}
}

// Position says, of a Place that waits for its turn, which of how many it is, if no
// other arrives; 0 of a Place that does not wait. It does not know that a client has
// as many running as it may.
func (p *Place) Position() (at, of int) {
	if p == nil || p.line == nil {
		return 0, 0
	}
	q := p.line.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.state != waiting {
		return 0, 0
	}
	round := slices.Index(p.line.waiting, p) // in which its line brings it forward, from 0
	before := true
	for _, l := range q.lines {
		of += len(l.waiting)
		switch {
		case l == p.line:
			before = false
			at += round + 1
		case before:
			at += min(len(l.waiting), round+1)
		default:
			at += min(len(l.waiting), round)
		}
	}
	return at, of
}

// Turn is the Position in words, "3rd of 7"; empty of a Place that does not wait.
func (p *Place) Turn() string {
	at, of := p.Position()
	if at == 0 {
		return ""
	}
	suffix := "th"
	if at/10%10 != 1 {
		switch at % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s of %d", at, suffix, of)
}

// Counts returns how many executions of the client run and how many wait for their
// turn.
func (l *Line) Counts() (running, waiting int) {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return l.running, len(l.waiting)
}

// Counts returns how many executions run and how many wait for their turn.
func (q *Queue) Counts() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		waiting += len(l.waiting)
	}
	return q.running, waiting
}
