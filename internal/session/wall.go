package session

import (
	"sync"
	"time"
)

const (
	// jumped is how far a clock is off that was set, and does not merely drift.
	jumped = time.Minute
	// maxJumps is how many are remembered.
	maxJumps = 64
)

// clock tells two times: how long this process has had it, which nobody can
// change, and what the machine says that it is, which jumps when somebody sets
// it. What happens within the process goes by the first; the second is for what
// is written down. It is safe for concurrent use.
type clock struct {
	wall  func() time.Time
	began time.Time // with the reading that does not jump

	mu    sync.Mutex
	first time.Time // what the machine said then, or would have, as it is set now
	jumps []jump    // forward, oldest first
}

// jump is a moment at which the machine's clock was set forward.
type jump struct {
	from time.Time // what it said before
	by   time.Duration
}

// newClock takes the machine's time from wall; nil is time.Now.
func newClock(wall func() time.Time) *clock {
	if wall == nil {
		wall = time.Now
	}
	return &clock{wall: wall, began: time.Now(), first: wall().Round(0)}
}

// elapsed is how long it has been.
func (c *clock) elapsed() time.Duration { return time.Since(c.began) }

// now is what the machine says.
func (c *clock) now() time.Time { return c.wall().Round(0).UTC() }

// at is what the machine would have said at a moment, if it had always said
// what it says now.
func (c *clock) at(elapsed time.Duration) time.Time { return c.now().Add(elapsed - c.elapsed()) }

// look notices when the clock was set.
func (c *clock) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	expected := c.first.Add(c.elapsed())
	by := c.now().Sub(expected)
	if by.Abs() < jumped {
		return
	}
	c.first = c.first.Add(by)
	if by > 0 {
		c.jumps = append(c.jumps, jump{expected, by})
		c.jumps = c.jumps[max(0, len(c.jumps)-maxJumps):]
	}
}

// age is how long ago something was written down. A jump of the clock makes
// nothing old that was there before.
func (c *clock) age(written time.Time) time.Duration {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	age := c.now().Sub(written)
	for _, j := range c.jumps {
		if !written.After(j.from) {
			age -= j.by
		}
	}
	return max(0, age)
}
