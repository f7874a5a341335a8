package executable

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// startTime is how long a process starts.
	startTime = time.Second
	// startPercent has the first collection wait until the heap has 32 MiB.
	startPercent = 800
)

// How late timers may be: see [Start].
const (
	Prompt = 50 * time.Microsecond // as Linux has it
	Late   = 400 * time.Microsecond
)

var collector struct {
	sync.Mutex
	starting bool
	percent  int // after the start
}

// Begin has this process start without collections of garbage, which would take the
// processors that the start needs. A second later the collector runs as before, and
// the memory that only the start has used is given back to the system: garbage, and
// the pages of this file that are mapped. It is called once, before the process
// changes its root.
func Begin() {
	collector.Lock()
	defer collector.Unlock()
	collector.starting, collector.percent = true, debug.SetGCPercent(startPercent)
	unmap := mapped()
	time.AfterFunc(startTime, func() {
		collector.Lock()
		debug.SetGCPercent(collector.percent)
		collector.starting = false
		collector.Unlock()
		debug.FreeOSMemory()
		unmap()
		// What followed the start has mapped pages, too.
		for delay := startTime; delay <= time.Minute; delay *= 2 {
			time.AfterFunc(delay, unmap)
		}
	})
}

// Collect is debug.SetGCPercent, which takes effect after the start.
func Collect(percent int) {
	collector.Lock()
	defer collector.Unlock()
	if collector.percent = percent; !collector.starting {
		debug.SetGCPercent(percent)
	}
}
