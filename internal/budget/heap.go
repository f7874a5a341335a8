package budget

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// small amounts are not worth counting.
	small = 64 << 10
	// garbage is how much may be charged before the collector is started: what
	// was released is memory of the host until the collector has run, and by
	// itself it waits until the heap has doubled.
	garbage = 48 << 20
	// large is the use after whose end memory is returned to the system.
	large = 24 << 20
	// settle is how long after it.
	settle = time.Second

	// limitStep is how much the use changes between two settings of the
	// runtime's memory limit, and limitFrom the use from which it has one.
	limitStep = 8 << 20
	limitFrom = 8 << 20
	// slack is what the limit leaves beyond what is charged and what the
	// program itself has, and headroom what it leaves beyond all that is alive,
	// so that the collector does not run all the time.
	slack    = 40 << 20
	headroom = 24 << 20
)

// heap keeps the resident memory of the program near to what is charged.
type heap struct {
	debt    atomic.Int64 // charged since the collector was started
	running sync.Mutex
	tidying atomic.Bool

	// Guarded by tree.mu.
	limits bool  // the runtime's memory limit follows the use
	own    int64 // alive when the use was small
	last   int64 // the use for which the limit was set
}

// follow sets the soft memory limit of the runtime by the bytes that are
// charged. tree.mu is held.
func (h *heap) follow(used int64) {
	if !h.limits || used >= h.last && used < h.last+limitStep || used < h.last && used > h.last-limitStep && used >= limitFrom {
		return
	}
	if used < limitFrom {
		if h.last > 0 {
			h.last = 0
			debug.SetMemoryLimit(math.MaxInt64)
		}
		return
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	alive := int64(sample[0].Value.Uint64())
	if h.last == 0 {
		h.own = alive
	}
	h.last = used
	debug.SetMemoryLimit(max(used+h.own+slack, alive+headroom))
}

// unlimited says that the user has not set GOMEMLIMIT.
func unlimited() bool { return debug.SetMemoryLimit(-1) == math.MaxInt64 }

// grown notes a charge. With wait the caller pays for the collection, which
// bounds how much a sandbox can have allocated meanwhile.
func (h *heap) grown(n int64, wait bool) {
	if n < small || h.debt.Add(n) < garbage {
		return
	}
	h.debt.Store(0)
	collect := func() {
		h.running.Lock()
		defer h.running.Unlock()
		runtime.GC()
	}
	if wait {
		collect()
	} else {
		go collect()
	}
}

// returned takes back a charge of [heap.grown].
func (h *heap) returned(n int64) {
	for {
		debt := h.debt.Load()
		if h.debt.CompareAndSwap(debt, max(0, debt-n)) {
			return
		}
	}
}

// Allocated returns how many bytes the program has allocated since its start.
func Allocated() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// emptied notes that a budget which held much holds nothing. It does not
// block.
func (h *heap) emptied() {
	if h.tidying.CompareAndSwap(false, true) {
		time.AfterFunc(settle, func() {
			h.tidying.Store(false)
			debug.FreeOSMemory()
		})
	}
}
