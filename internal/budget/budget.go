// Package budget bounds the bytes that sandboxes and MCP servers make the host
// hold. A [Budget] is a limit with a parent: what is charged to it is charged
// to the parent too, except for a floor that belongs to the child alone. A
// [Host] is the budgets of a program, a [Sandbox] those of one sandbox, and a
// [Lease] what one call holds of them.
//
// Two rules prevent deadlocks. Whoever waits in Acquire holds nothing of the
// same budget, and requests and replies are charged to separate budgets, so
// that a reply never waits for a request that waits for it.
package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

var (
	// ErrTooLarge: the amount exceeds the limit and never fits.
	ErrTooLarge = errors.New("more than the memory budget allows")
	// ErrClosed: the owner of the budget has ended.
	ErrClosed = errors.New("the memory budget is closed")
)

// Budget is a number of bytes that may be held. All methods are safe for
// concurrent use. A nil Budget has no limit.
type Budget struct {
	tree         *tree
	parent       *Budget
	limit, floor int64

	// Guarded by tree.mu.
	used   int64
	peak   int64 // since used was zero
	closed bool
}

// tree is what all budgets below one root share.
type tree struct {
	mu      sync.Mutex
	waiting []*waiter // in the order of arrival
	heap    heap
	used    int64 // by all, floors included
}

type waiter struct {
	budget *Budget
	n      int64
	ready  chan error // has room for one
}

// New returns a root.
func New(limit int64) *Budget { return &Budget{tree: &tree{}, limit: limit} }

// Sub returns a child. The first floor bytes charged to it are not charged to
// b: no other child can take them away.
func (b *Budget) Sub(limit, floor int64) *Budget {
	if b == nil {
		return New(limit)
	}
	return &Budget{tree: b.tree, parent: b, limit: limit, floor: min(floor, limit)}
}

// Acquire charges n bytes, and waits for them until ctx ends or the budget is
// closed. Those who wait for the same budget are served in order. The error is
// ErrTooLarge, ErrClosed or the cause of ctx.
func (b *Budget) Acquire(ctx context.Context, n int64) error {
	if b == nil || n <= 0 {
		return nil
	}
	t := b.tree
	t.mu.Lock()
	switch {
	case b.closed:
		t.mu.Unlock()
		return ErrClosed
	case n > b.most():
		t.mu.Unlock()
		return fmt.Errorf("%w: %s, where %s are allowed", ErrTooLarge, size(n), size(b.most()))
	}
	w := &waiter{b, n, make(chan error, 1)}
	t.waiting = append(t.waiting, w)
	t.serve()
	t.mu.Unlock()
	select {
	case err := <-w.ready:
		if err == nil {
			t.heap.grown(n, true)
		}
		return err
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case err := <-w.ready: // in the same moment
		if err == nil {
			b.release(n)
		}
	default:
		t.waiting = slices.DeleteFunc(t.waiting, func(other *waiter) bool { return other == w })
		t.serve() // it may have blocked another caller
	}
	return context.Cause(ctx)
}

// TryAcquire charges n bytes if that is possible at once. It never blocks.
func (b *Budget) TryAcquire(n int64) bool {
	if b == nil || n <= 0 {
		return true
	}
	b.tree.mu.Lock()
	ok := !b.closed && b.lacking(n) == nil
	if ok {
		b.charge(n)
	}
	b.tree.mu.Unlock()
	if ok {
		b.tree.heap.grown(n, false)
	}
	return ok
}

// Release gives n charged bytes back.
func (b *Budget) Release(n int64) {
	if b == nil || n <= 0 {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	b.release(n)
}

// Return gives n charged bytes back that were reserved and never allocated:
// there is nothing for the collector to do.
func (b *Budget) Return(n int64) {
	if b == nil || n <= 0 {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	b.tree.heap.returned(n)
	for up := b; up != nil; up = up.parent {
		up.peak = max(up.peak-n, 1)
	}
	b.release(n)
}

// Close fails those who wait, and whoever comes later. What is charged stays
// so until it is released.
func (b *Budget) Close() {
	if b == nil {
		return
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	b.closed = true
	b.tree.waiting = slices.DeleteFunc(b.tree.waiting, func(w *waiter) bool {
		if w.budget == b {
			w.ready <- ErrClosed
		}
		return w.budget == b
	})
	b.tree.serve()
}

// Used is how many bytes are charged.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	b.tree.mu.Lock()
	defer b.tree.mu.Unlock()
	return b.used
}

// most is what fits when nothing else is charged.
func (b *Budget) most() int64 {
	if b.parent == nil {
		return b.limit
	}
	return min(b.limit, b.floor+b.parent.most())
}

// above is what of n more bytes the parent is charged.
func (b *Budget) above(n int64) int64 { return max(0, b.used+n-b.floor) - max(0, b.used-b.floor) }

// lacking returns the budget that has no room for n more bytes of b, or nil.
func (b *Budget) lacking(n int64) *Budget {
	for ; b != nil && n > 0; b = b.parent {
		if b.used+n > b.limit {
			return b
		}
		n = b.above(n)
	}
	return nil
}

// behind reports whether n more bytes of b need a budget that is in blocked.
func (b *Budget) behind(blocked []*Budget, n int64) bool {
	for ; b != nil && n > 0; b = b.parent {
		if slices.Contains(blocked, b) {
			return true
		}
		n = b.above(n)
	}
	return false
}

func (b *Budget) charge(n int64) {
	b.tree.used += n
	b.tree.heap.follow(b.tree.used)
	for ; b != nil && n > 0; b = b.parent {
		up := b.above(n)
		b.used += n
		b.peak = max(b.peak, b.used)
		n = up
	}
}

func (b *Budget) release(n int64) {
	t := b.tree
	if n > b.used {
		// A defect of the caller, which must not end the program: hostile input
		// could have caused it.
		n = b.used
	}
	t.used -= n
	t.heap.follow(t.used)
	for ; b != nil && n > 0; b = b.parent {
		b.used -= n
		up := b.above(n)
		if b.used == 0 {
			if b.peak >= large {
				t.heap.emptied()
			}
			b.peak = 0
		}
		n = up
	}
	t.serve()
}

// serve charges those who wait and now fit, in order. No caller overtakes
// another that waits for the same budget, so that a large amount gets its turn.
func (t *tree) serve() {
	if len(t.waiting) == 0 {
		return
	}
	var blocked []*Budget
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waiter) bool {
		if w.budget.behind(blocked, w.n) {
			if !slices.Contains(blocked, w.budget) {
				blocked = append(blocked, w.budget)
			}
			return false
		}
		if full := w.budget.lacking(w.n); full != nil {
			blocked = append(blocked, full, w.budget)
			return false
		}
		w.budget.charge(w.n)
		w.ready <- nil
		return true
	})
}

func size(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%d MB", n>>20)
}
