package session

import (
	"context"
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
	turn chan struct{}
}

// enter takes the next place. It never blocks.
func (q *queue) enter() *Ticket {
	t := &Ticket{turn: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, t)
	if len(q.waiting) == 1 {
		close(t.turn)
	}
	return t
}

// wait blocks until it is t's turn, or ctx is done.
func (q *queue) wait(ctx context.Context, t *Ticket) error {
	select {
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

// length returns how many executions wait or run.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
