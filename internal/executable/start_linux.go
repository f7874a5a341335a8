package executable

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// timerSlack is by how many nanoseconds the timers of a process may be late.
const timerSlack = 400_000

// Start starts a process of this program whose timers may be late by 0.4 ms, as those of
// the processes that it starts. As soon as a Go program has something to do, its runtime
// looks after it every 20 µs, which Linux makes 70. During a warm call these are seven
// wake-ups in each process, which take the processor from the next one.
func Start(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil && before < timerSlack && unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0) == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0) }()
	}
	return cmd.Start()
}
