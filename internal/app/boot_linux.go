package app

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns how long the machine has run, sleep included; 0 where that is
// not known.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
