//go:build linux

package sandboxtest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func sha256hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// heap returns what this process's heap holds now, including garbage.
func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// heapSince is what the heap holds more than before, in bytes, garbage included. The
// race detector slows the collector so much that garbage would decide: there, what
// is over the bound is collected first, several times, because what is allocated
// during a collection survives it.
func heapSince(before int64) int64 {
	now := heap() - before
	for i := 0; raceDetector && now > growth && i < 10; i++ {
		runtime.GC()
		now = min(now, heap()-before)
	}
	return now
}

// hostProcesses counts the host's processes.
func hostProcesses() int {
	d, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	n := 0
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			n++
		}
	}
	return n
}

func (c *collector) setLimit(n int) {
	c.mu.Lock()
	c.limit = n
	c.mu.Unlock()
}

// accounting tests that the host measures what the code used.
func (s *suite) accounting(t *testing.T) {
	sess := s.start(t, s.backend(t), s.spec())
	m, ok := sandbox.As[sandbox.Meter](sess.run)
	if !ok {
		Skip(t, s.cfg.Engine+".accounting", "the engine does not meter")
	}
	usage := func() sandbox.Usage {
		t.Helper()
		u, err := m.Usage(t.Context())
		if err != nil {
			t.Fatalf("Usage: %v", err)
		}
		return u
	}
	spent := func(code string) time.Duration {
		t.Helper()
		before := usage()
		sess.must(t, code)
		return usage().CPU - before.CPU
	}
	if usage().CPU < 0 {
		Skip(t, s.cfg.Engine+".accounting", "the engine does not know processor time")
	}
	const second = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass"
	const inChild = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', " + `"""` + second + `"""` + "]) and None"
	const inThreads = "import threading, hashlib\ndef work():\n" +
		"    import time\n    end = time.thread_time() + 0.5\n    while time.thread_time() < end: pass\n" +
		"th = [threading.Thread(target=work) for _ in range(2)]\n[t.start() for t in th]; [t.join() for t in th]; None"
	// The sandbox's own kernel may count time as used that a busy host did not
	// give it: the code's second is then less than one here.
	const least = 250 * time.Millisecond
	for _, tt := range []struct {
		name, code  string
		least, most time.Duration
	}{
		{"spinning", second, least, 4 * time.Second},
		{"a child spinning", inChild, least, 4 * time.Second},
		{"threads spinning", inThreads, least, 4 * time.Second},
		{"sleeping", "import time; time.sleep(1)", 0, 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.code, "subprocess") {
				s.needProcesses(t)
			}
			got := spent(tt.code)
			t.Logf("%v of processor time", got)
			if got < tt.least || got > tt.most {
				t.Errorf("%v of processor time, want %v to %v", got, tt.least, tt.most)
			}
		})
	}
	t.Run("never less", func(t *testing.T) {
		last := usage().CPU
		for range 20 {
			if s.report.Single {
				sess.must(t, "sum(range(1000)) and None")
			} else {
				sess.must(t, "import subprocess; subprocess.run(['true']) and None")
			}
			if now := usage().CPU; now < last {
				t.Fatalf("processor time went from %v back to %v", last, now)
			} else {
				last = now
			}
		}
	})
	t.Run("memory", func(t *testing.T) {
		const size = 100 << 20
		before := usage()
		if before.MemoryBytes < 0 {
			t.Skip("the engine does not know memory")
		}
		sess.must(t, "kept = bytearray(b'x') * (100 << 20)")
		with := usage()
		if grown := with.MemoryBytes - before.MemoryBytes; grown < size*8/10 || grown > size*2 {
			t.Errorf("an increase of 100 MB was measured as %d MB", grown>>20)
		}
		sess.must(t, "del kept")
		after := usage()
		if after.PeakBytes >= 0 && after.PeakBytes < with.MemoryBytes*9/10 {
			t.Errorf("the peak is %d MB where %d were in use", after.PeakBytes>>20, with.MemoryBytes>>20)
		}
	})
}

// memoryShown returns a test that the sandbox shows its limit as its memory. Programs
// choose the size of caches and buffers by it.
func (s *suite) memoryShown(limit int64) func(*testing.T, *session) {
	return func(t *testing.T, sess *session) {
		if s.report.Isolation < sandbox.KernelIsolation {
			Skip(t, s.cfg.Engine+".limits.memory-shown", "the kernel is the host's, and shows its memory")
		}
		got := sess.must(t, `
import os
sizes = {name: int(value.split()[0]) << 10 for name, value in (line.split(":") for line in open("/proc/meminfo"))}
page, total = os.sysconf("SC_PAGE_SIZE"), sizes["MemTotal"]
print(total, os.sysconf("SC_PHYS_PAGES") * page, *(0 < n <= total for n in (sizes["MemFree"], sizes["MemAvailable"], os.sysconf("SC_AVPHYS_PAGES") * page)))
`)
		if want := fmt.Sprintf("%d %d True True True\n", limit, limit); got != want {
			t.Errorf("memory, by /proc/meminfo and sysinfo, and whether the free part fits: got %q, want %q", got, want)
		}
	}
}
