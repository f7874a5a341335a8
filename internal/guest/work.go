package guest

import (
	"sync/atomic"
	"time"
)

// What a frame costs the host besides its decoding, about: reading it, and
// answering or keeping it.
const (
	frameCost    = 10 * time.Microsecond
	megabyteCost = 2 * time.Millisecond
)

// work is the time that the host has spent on a guest's frames.
type work struct{ spent atomic.Int64 }

// add notes a frame of n bytes that was decoded since began.
func (w *work) add(n int, began time.Time) {
	cost := frameCost + time.Duration(n)*megabyteCost/(1<<20)
	if !began.IsZero() {
		// Measured: a byte of one frame costs a hundred times that of another.
		cost += time.Since(began)
	}
	w.spent.Add(int64(cost))
}

// Work is about how much processor time the host has spent on the guest's
// frames.
func (c *Conn) Work() time.Duration { return time.Duration(c.work.spent.Load()) }
