package guest

import (
	"sync/atomic"
	"time"
)

// What handling a frame costs the host, about: reading and decoding it, and
// refusing the call that it may make. It was measured with floods of each kind
// and is rounded up.
const (
	frameCost    = 20 * time.Microsecond
	megabyteCost = 12 * time.Millisecond
)

// work counts what a guest makes the host do.
type work struct{ frames, bytes atomic.Int64 }

func (w *work) add(n int) {
	w.frames.Add(1)
	w.bytes.Add(int64(n))
}

// Work estimates the processor time that the host has spent on the guest's
// frames.
func (c *Conn) Work() time.Duration {
	return time.Duration(c.work.frames.Load())*frameCost + time.Duration(c.work.bytes.Load())*megabyteCost/(1<<20)
}
