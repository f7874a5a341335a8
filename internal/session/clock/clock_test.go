package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestJumps: a jump of the machine's clock changes neither what elapsed nor the
// age of what was written before it.
func TestJumps(t *testing.T) {
	for name, by := range map[string]time.Duration{"forward": 24 * time.Hour, "back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := time.Duration(0)
				c := New(func() time.Time { return time.Now().Add(set) })
				written := c.Now()
				time.Sleep(time.Hour)
				set = by
				if got := c.Elapsed(); got != time.Hour {
					t.Errorf("got %v elapsed, want 1h", got)
				}
				want := time.Hour
				if by < 0 {
					want = 0 // it seems to lie in the future
				}
				if got := c.Age(written); got != want {
					t.Errorf("got an age of %v, want %v", got, want)
				}
				later := c.Now()
				time.Sleep(time.Minute)
				if got := c.Age(later); got != time.Minute {
					t.Errorf("got an age of %v after the jump, want 1m", got)
				}
				if got, want := c.At(time.Hour), later; !got.Equal(want) {
					t.Errorf("got %v for the moment of the jump, want %v", got, want)
				}
			})
		})
	}
}
