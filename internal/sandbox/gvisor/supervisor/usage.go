//go:build linux && (amd64 || arm64)

package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// usage is the use of all processes in the supervisor's process namespace.
type usage struct {
	cpu    time.Duration
	memory int64
}

// measure sums over the processes in /proc: the supervisor, the sandbox's kernel
// with its stub processes, and the gofer. Memory is the private memory of each
// (resident less shared, proc(5) statm) and the blocks of the file that backs the
// sandbox's own memory, which the kernel and its stubs map shared.
func measure() (usage, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return usage{}, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return usage{}, err
	}
	var u usage
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// A process that ends meanwhile is skipped: its time moves to its
		// parent, which waited for it.
		if stat, err := supervise.ReadProcessStat(pid); err == nil {
			u.cpu += stat.CPU
		}
		if private, err := privateBytes(pid); err == nil {
			u.memory += private
		}
		u.memory += memoryFiles.bytes(pid)
	}
	return u, nil
}

func privateBytes(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return 0, errors.New("short statm")
	}
	resident, err1 := strconv.ParseInt(f[1], 10, 64)
	shared, err2 := strconv.ParseInt(f[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	return (resident - shared) * int64(os.Getpagesize()), nil
}

// memoryFiles remembers, per process, which descriptor is the sandbox's
// memory: looking for it costs a directory scan.
var memoryFiles = memoryFileCache{fd: map[int]string{}}

type memoryFileCache struct {
	mu sync.Mutex
	fd map[int]string // pid -> /proc path of the descriptor, "" for none
}

// bytes returns the allocated size of the memory file if pid is the sandbox's
// kernel, and 0 for every other process.
func (m *memoryFileCache) bytes(pid int) int64 {
	m.mu.Lock()
	path, known := m.fd[pid]
	m.mu.Unlock()
	if !known {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			return 0
		}
		// Stub processes share the kernel's command line but not its
		// descriptors.
		if bytes.HasPrefix(cmdline, []byte("runsc-sandbox")) {
			path = findMemoryFile(pid)
			if path == "" {
				return 0 // not opened yet
			}
		}
		m.mu.Lock()
		m.fd[pid] = path
		m.mu.Unlock()
	}
	if path == "" {
		return 0
	}
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

func findMemoryFile(pid int) string {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err == nil && strings.HasPrefix(target, "/memfd:runsc-memory") {
			return dir + "/" + e.Name()
		}
	}
	return ""
}
