package session

import (
	"context"
	"slices"
	"sync"
)

// queue lets executions through one at a time, in the order of their tickets.
type queue struct {
	mu      sync.Mutex
	waiting []*Ticket // the first one holds the turn
}

// A Ticket is a place in a session's queue. Its owner calls wait at most once
// and leave exactly once.
type Ticket struct {
	turn chan struct{} // closed when it holds the turn; nil: it always has
}

// enter takes the next place. It never blocks.
func (q *queue) enter() *Ticket {
	t := &Ticket{}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		t.turn = make(chan struct{})
	}
	q.waiting = append(q.waiting, t)
	return t
}

// wait blocks until it is t's turn, or ctx is done.
func (q *queue) wait(ctx context.Context, t *Ticket) error {
	if t.turn == nil {
		return nil
	}
	select { // even if ctx is done as well
	case <-t.turn:
		return nil
	default:
	}
	select {
	case <-t.turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives up t's place, or ends its turn.
func (q *queue) leave(t *Ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, w := range q.waiting {
		if w != t {
			continue
		}
		q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
		if i == 0 && len(q.waiting) > 0 {
			close(q.waiting[0].turn)
		}
		return
	}
}

// ahead returns how many executions run or wait before t; 0 also if t has left.
func (q *queue) ahead(t *Ticket) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, slices.Index(q.waiting, t))
}

// length returns how many executions wait or run.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
