package budget

import (
	"runtime"
	"runtime/debug"
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
)

// heap keeps the resident memory of the program near to what is charged.
type heap struct {
	debt    atomic.Int64 // charged since the collector was started
	running sync.Mutex
	tidying atomic.Bool
}

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
