// Package clock tells the time in a long-running process on a machine whose
// clock may be set at any moment.
package clock

import (
	"sync"
	"time"
)

const (
	// minJump is how far a clock must be off to count as set; anything less is
	// drift.
	minJump = time.Minute
	// maxJumps bounds how many jumps are remembered.
	maxJumps = 64
)

// Clock tells two times: the time since its creation, which cannot be changed,
// and the machine's time, which jumps when it is set. The first is for events
// within the process, the second for records on disk. It is safe for concurrent
// use.
type Clock struct {
	wall  func() time.Time
	began time.Time // with the monotonic reading

	mu    sync.Mutex
	first time.Time // the machine's time at the beginning, by its present setting
	jumps []jump    // forward, oldest first
}

// jump is a moment at which the machine's clock was set forward.
type jump struct {
	from time.Time // the machine's time before
	by   time.Duration
}

// New returns a clock that reads the machine's time from wall; nil means
// time.Now.
func New(wall func() time.Time) *Clock {
	if wall == nil {
		wall = time.Now
	}
	return &Clock{wall: wall, began: time.Now(), first: wall().Round(0)}
}

// Elapsed returns the time since the clock's creation.
func (c *Clock) Elapsed() time.Duration { return time.Since(c.began) }

// Now returns the machine's time.
func (c *Clock) Now() time.Time { return c.wall().Round(0).UTC() }

// At returns the machine's time at a moment, by its present setting.
func (c *Clock) At(elapsed time.Duration) time.Time { return c.Now().Add(elapsed - c.Elapsed()) }

// Look checks whether the machine's clock was set. It must be called from time
// to time.
func (c *Clock) Look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	expected := c.first.Add(c.Elapsed())
	by := c.Now().Sub(expected)
	if by.Abs() < minJump {
		return
	}
	c.first = c.first.Add(by)
	if by > 0 {
		c.jumps = append(c.jumps, jump{expected, by})
		c.jumps = c.jumps[max(0, len(c.jumps)-maxJumps):]
	}
}

// Age returns the age of a record on disk. A jump of the machine's clock does
// not make it older.
func (c *Clock) Age(written time.Time) time.Duration {
	c.Look()
	c.mu.Lock()
	defer c.mu.Unlock()
	age := c.Now().Sub(written)
	for _, j := range c.jumps {
		if !written.After(j.from) {
			age -= j.by
		}
	}
	return max(0, age)
}
