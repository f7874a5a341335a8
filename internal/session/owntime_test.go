package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/session/usage"
)

// step is a piece of an execution: what happens, and how long until the next.
type step struct {
	begin, end int           // calls that begin and end at its start
	wall       time.Duration // its length
	cpu        time.Duration // processor time used in it
	settle     bool          // the sampler looks at its end
}

func TestOwnTime(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name    string
		metered bool
		steps   []step
		want    time.Duration
	}{
		{"no calls: wall time, whatever the processors do", true, []step{
			{settle: true},
			{wall: 100 * ms, cpu: 400 * ms, settle: true},
			{wall: 100 * ms, cpu: 0, settle: true},
		}, 200 * ms},
		{"waiting for a call costs nothing", true, []step{
			{settle: true},
			{begin: 1, wall: 1000 * ms, settle: true},
			{end: 1, wall: 50 * ms, settle: true},
		}, 50 * ms},
		{"a thread that spins beside a call pays", true, []step{
			{settle: true},
			{begin: 1, wall: 1000 * ms, cpu: 990 * ms, settle: true},
		}, 990 * ms},
		{"eight threads beside a call pay wall time, not more", true, []step{
			{settle: true},
			{begin: 1, wall: 1000 * ms, cpu: 8000 * ms, settle: true},
		}, 1000 * ms},
		{"within an interval processor time goes to the wall time without a call first", true, []step{
			{settle: true},
			{wall: 60 * ms, cpu: 60 * ms},
			{begin: 1, wall: 40 * ms, cpu: 10 * ms, settle: true},
		}, 70 * ms},
		{"calls that overlap are one wait", true, []step{
			{settle: true},
			{begin: 1, wall: 10 * ms},
			{begin: 2, wall: 10 * ms},
			{end: 2, wall: 10 * ms},
			{end: 1, wall: 20 * ms, settle: true},
		}, 20 * ms},
		{"a call over many intervals", true, []step{
			{settle: true},
			{begin: 1, wall: 100 * ms, settle: true},
			{wall: 100 * ms, cpu: 30 * ms, settle: true},
			{wall: 100 * ms, settle: true},
			{end: 1, wall: 5 * ms, cpu: 5 * ms, settle: true},
		}, 35 * ms},
		{"without a meter waiting is free", false, []step{
			{settle: true},
			{begin: 1, wall: 1000 * ms, settle: true},
			{end: 1, wall: 30 * ms, settle: true},
		}, 30 * ms},
		{"the first measurement is the prepared: earlier use is not charged", true, []step{
			{begin: 1, wall: 100 * ms, cpu: 5000 * ms, settle: true},
			{wall: 100 * ms, cpu: 20 * ms, settle: true},
		}, 20 * ms},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := newOwnTime(time.Now())
				var cpu, own time.Duration
				for _, s := range tt.steps {
					for range s.begin {
						clock.callBegins()
					}
					for range s.end {
						clock.callEnds()
					}
					time.Sleep(s.wall)
					cpu += s.cpu
					if s.settle {
						measured := usage.UnknownCPU
						if tt.metered {
							measured = cpu
						}
						own = clock.settle(time.Now(), measured)
					}
				}
				if own != tt.want {
					t.Errorf("own time %v, want %v", own, tt.want)
				}
			})
		})
	}
}

// A meter that fails for an interval must neither charge nor forgive later.
func TestOwnTimeWithAGapInTheMeasurements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newOwnTime(time.Now())
		clock.callBegins()
		clock.settle(time.Now(), 0)
		time.Sleep(time.Second)
		if own := clock.settle(time.Now(), usage.UnknownCPU); own != 0 {
			t.Errorf("unknown use was charged: %v", own)
		}
		time.Sleep(time.Second)
		if own := clock.settle(time.Now(), 2*time.Second); own != 0 {
			t.Errorf("use of an unknown time was charged: %v", own)
		}
		time.Sleep(time.Second)
		if own := clock.settle(time.Now(), 3*time.Second); own != time.Second {
			t.Errorf("own time %v after a second of measured use", own)
		}
	})
}
