package runpodtest

import (
	"sync"
	"time"
)

// A Clock tells the time and rings.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// ManualClock stands still until it is advanced.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []alarm
}

type alarm struct {
	at time.Time
	c  chan time.Time
}

// NewManualClock starts at a fixed time.
func NewManualClock() *ManualClock {
	return &ManualClock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// Now implements Clock.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements Clock.
func (c *ManualClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := alarm{c.now.Add(d), make(chan time.Time, 1)}
	if d <= 0 {
		a.c <- c.now
		return a.c
	}
	c.alarms = append(c.alarms, a)
	return a.c
}

// Advance lets time pass.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	kept := c.alarms[:0]
	for _, a := range c.alarms {
		if a.at.After(c.now) {
			kept = append(kept, a)
		} else {
			a.c <- c.now
		}
	}
	c.alarms = kept
}
