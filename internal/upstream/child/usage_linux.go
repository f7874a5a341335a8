package child

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"
)

// clockTick is the unit of processor times in /proc, which Linux fixes at
// 100 Hz for programs.
const clockTick = 10 * time.Millisecond

// fresh is how long a look at all processes is used for.
const fresh = 500 * time.Millisecond

// sessions is what the processes of each session use. One look at /proc is for
// all programs.
var sessions struct {
	sync.Mutex
	at time.Time
	by map[int]usage
}

type usage struct {
	cpu   time.Duration
	bytes int64
}

// running is what the session that the program leads uses now.
func (p *Process) running() (usage, bool) {
	sessions.Lock()
	defer sessions.Unlock()
	if time.Since(sessions.at) > fresh {
		sessions.at, sessions.by = time.Now(), look()
	}
	u, ok := sessions.by[p.PID()]
	return u, ok
}

// look reads what all processes use, by their sessions. Processor time of
// processes that have ended is their parents', once these have waited for them.
func look() map[int]usage {
	by := map[int]usage{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return by
	}
	page := int64(os.Getpagesize())
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// After the name, which may have blanks and parentheses: the state is
		// field 3 of proc(5).
		f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
		if len(f) < 22 {
			continue
		}
		field := func(n int) int64 {
			v, _ := strconv.ParseInt(string(f[n-3]), 10, 64) // the kernel's own numbers
			return v
		}
		session := int(field(6))
		u := by[session]
		u.cpu += time.Duration(field(14)+field(15)+field(16)+field(17)) * clockTick
		u.bytes += field(24) * page
		by[session] = u
	}
	return by
}
