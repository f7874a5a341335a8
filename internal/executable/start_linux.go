package executable

import (
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Start starts a process of this program whose timers, and those of the processes that it
// starts, may be late by slack.
//
// As soon as a Go program has something to do, its runtime looks after it every 20 µs,
// which Linux makes 70. During a warm call these are seven wake-ups of the hub, which
// take the processor from the next process. With [Late] there are two.
func Start(cmd *exec.Cmd, slack time.Duration) error {
	runtime.LockOSThread() // the new process has the slack of the thread that starts it
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil && unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0) }()
	}
	return cmd.Start()
}
