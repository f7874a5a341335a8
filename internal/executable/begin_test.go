package executable

import (
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// The collector rests during the start and then runs as before, or as was asked for
// meanwhile.
func TestBegin(t *testing.T) {
	before := debug.SetGCPercent(70)
	defer debug.SetGCPercent(before)
	now := func() int {
		percent := debug.SetGCPercent(1)
		debug.SetGCPercent(percent)
		return percent
	}
	for _, c := range []struct{ asked, after int }{{0, 70}, {25, 25}} {
		debug.SetGCPercent(70)
		synctest.Test(t, func(t *testing.T) {
			Begin()
			if c.asked > 0 {
				Collect(c.asked)
			}
			if got := now(); got != startPercent {
				t.Errorf("at the start: got %d, want %d", got, startPercent)
			}
			time.Sleep(startTime)
			synctest.Wait()
			if got := now(); got != c.after {
				t.Errorf("%d asked for: got %d after the start, want %d", c.asked, got, c.after)
			}
			Collect(30)
			if got := now(); got != 30 {
				t.Errorf("later: got %d, want 30", got)
			}
		})
	}
}
