//go:build linux

package machine

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A cpuClock counts the processor time of the threads on which a session ran.
type cpuClock struct {
	mu    sync.Mutex
	spent time.Duration // before the present call
	clock int32         // of the thread that runs the session now; 0: none does
	from  time.Duration // what it showed when the call began
}

// threadTime returns what a thread's clock shows.
func threadTime(clock int32) time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(clock, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// begin says that the session runs on this thread from now on.
func (c *cpuClock) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The kernel's name for the clock of a thread, which others can read.
	const perThread, scheduled = 4, 2
	c.clock = ^int32(unix.Gettid())<<3 | perThread | scheduled
	c.from = threadTime(c.clock)
}

// end says that it runs there no more.
func (c *cpuClock) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent += max(threadTime(c.clock)-c.from, 0)
	c.clock = 0
}

// total returns the time so far.
func (c *cpuClock) total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clock == 0 {
		return c.spent
	}
	return c.spent + max(threadTime(c.clock)-c.from, 0)
}

// add counts time that an earlier session has used.
func (c *cpuClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spent += d
}
