package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// clockTick is the unit of CPU times in /proc. Linux fixes it at 100 Hz for user
// space on every architecture that the engines run on.
const clockTick = 10 * time.Millisecond

// ProcessStat is what proc(5) stat reports about a process.
type ProcessStat struct {
	State    byte // such as 'R' for running, 'T' for stopped, 'Z' for a zombie
	Parent   int
	CPU      time.Duration // its own, and that of children that it waited for
	Resident int64         // bytes
}

// ReadProcessStat reads the stat file of a process.
func ReadProcessStat(pid int) (ProcessStat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ProcessStat{}, err
	}
	// The command name, in parentheses, may contain anything. fields[0] is the
	// field that proc(5) numbers 3.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 22 {
		return ProcessStat{}, fmt.Errorf("/proc/%d/stat has %d fields, want more", pid, len(fields))
	}
	number := func(i int) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(string(fields[i]), 10, 64)
		}
		return n
	}
	out := ProcessStat{State: fields[0][0], Parent: int(number(1))}
	for i := 11; i < 15; i++ { // utime, stime, cutime, cstime
		out.CPU += time.Duration(number(i)) * clockTick
	}
	out.Resident = number(21) * int64(os.Getpagesize())
	return out, err
}
