package fake

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// groupUsage adds up what the living processes of a group use. What those that
// have ended used is counted in whoever waited for them.
func groupUsage(group int) (sandbox.Usage, error) {
	const ticks = 100 // USER_HZ, the same on every Linux
	var u sandbox.Usage
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return u, err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid pgrp … utime stime cutime cstime … rss: the
		// fields after the name, which may contain anything.
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 22 || string(f[2]) != strconv.Itoa(group) {
			continue
		}
		for _, i := range []int{11, 12, 13, 14} {
			n, _ := strconv.ParseInt(string(f[i]), 10, 64)
			u.CPU += time.Duration(n) * time.Second / ticks
		}
		pages, _ := strconv.ParseInt(string(f[21]), 10, 64)
		u.MemoryBytes += pages * int64(os.Getpagesize())
	}
	return u, nil
}
