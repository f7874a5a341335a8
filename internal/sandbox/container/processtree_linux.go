package container

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// processTree holds the processes of a container without control groups: the
// descendants of its first process. That is also the first process of a process
// namespace, so nothing leaves the tree. The owner of the container's user
// namespace may measure and signal them.
type processTree struct {
	init int
	fd   int // a pidfd, because the number may be reused; -1 if there is none

	mu   sync.Mutex
	cpu  map[int]time.Duration // of processes, by number, for those that end
	gone time.Duration
}

func newProcessTree(pid int) *processTree {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fd = -1
	}
	return &processTree{init: pid, fd: fd, cpu: map[int]time.Duration{}}
}

// watchable reports whether the process and its children can be measured and
// signalled.
func watchable(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	if _, err := os.ReadFile(dir + "/task/" + strconv.Itoa(pid) + "/children"); err != nil {
		return false
	}
	if _, err := os.ReadFile(dir + "/smaps_rollup"); err != nil {
		return false
	}
	return unix.Kill(pid, 0) == nil
}

// processes lists the tree.
func (t *processTree) processes() (pids []int) {
	queue := []int{t.init}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			continue // it has ended
		}
		pids = append(pids, pid)
		for _, task := range tasks {
			b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + task.Name() + "/children")
			if err != nil {
				continue
			}
			for _, child := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(child); err == nil {
					queue = append(queue, n)
				}
			}
		}
	}
	return pids
}

// usage sums over the processes. For those that ended between two samples without
// being waited for, the last sample counts.
func (t *processTree) usage() (sandbox.Usage, error) {
	pids := t.processes()
	if len(pids) == 0 {
		return sandbox.Usage{}, errors.New("its processes have ended")
	}
	u := sandbox.Usage{CPU: t.time(pids), MemoryBytes: t.memory(pids), PeakBytes: -1}
	return u, nil
}

// time returns their CPU time, which never falls: a process's time moves to its
// parent when that waits for it.
func (t *processTree) time(pids []int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sum time.Duration
	for _, pid := range pids {
		if stat, err := supervise.ReadProcessStat(pid); err == nil {
			sum += stat.CPU
		}
	}
	t.gone = max(t.gone, sum)
	return t.gone
}

// memory returns the processes' private and shared memory, and that of their
// files in memory.
func (t *processTree) memory(pids []int) int64 {
	var sum int64
	for _, pid := range pids {
		sum += ownMemory(pid)
	}
	return sum + t.files(pids)
}

// ownMemory returns a process's proportional share of memory that no file on disk
// backs.
func ownMemory(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return 0
	}
	var sum int64
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if name == "Pss_Anon" || name == "Pss_Shmem" {
			if f := strings.Fields(rest); len(f) > 0 {
				n, _ := strconv.ParseInt(f[0], 10, 64)
				sum += n << 10
			}
		}
	}
	return sum
}

// resident returns an upper bound of ownMemory that is cheap to read.
func resident(pid int) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// inodeBytes is roughly what the kernel needs for a file in memory besides its
// content.
const inodeBytes = 1 << 10

// files returns the memory of files: those on the container's tmpfs mounts, and
// those without a name that are only held open.
func (t *processTree) files(pids []int) int64 {
	var sum int64
	root := "/proc/" + strconv.Itoa(t.init) + "/root"
	for _, dir := range []string{"/workspace", "/tmp", "/dev/shm", sandbox.PackagesDir} {
		var st unix.Statfs_t
		if unix.Statfs(root+dir, &st) == nil && st.Type == unix.TMPFS_MAGIC {
			sum += int64(st.Blocks-st.Bfree) * int64(st.Bsize) //nolint:unconvert // differs between architectures
			sum += int64(st.Files-st.Ffree) * inodeBytes
		}
	}
	seen := map[uint64]bool{}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			path := filepath.Join(dir, fd.Name())
			link, err := os.Readlink(path)
			if err != nil || !strings.HasPrefix(link, "/memfd:") {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(path, &st) == nil && !seen[st.Ino] {
				seen[st.Ino] = true
				sum += st.Blocks * 512
			}
		}
	}
	return sum
}

// sampling is how often the watcher samples. Code that fills memory as fast as
// possible is some hundred MB over the limit by then.
const sampling = 20 * time.Millisecond

// watch kills the container when it exceeds its memory limit, until g ends.
func (t *processTree) watch(g *meter) {
	defer t.close()
	ticker := time.NewTicker(sampling)
	defer ticker.Stop()
	limits := g.r.limits
	for tick := 0; ; tick++ {
		select {
		case <-g.ctx.Done():
			return
		case <-ticker.C:
		}
		if !t.over(t.processes(), limits.MemoryBytes, tick%5 == 0) {
			continue
		}
		g.oom.Store(true)
		t.signal(unix.SIGKILL)
		return
	}
}

// over reports whether the processes use more than limit. It reads what is cheap
// first, and the rest only if that does not decide.
func (t *processTree) over(pids []int, limit int64, thorough bool) bool {
	var most int64
	for _, pid := range pids {
		most += resident(pid)
	}
	if most <= limit && !thorough {
		return false
	}
	return most+t.files(pids) > limit && t.memory(pids) > limit
}

// signal signals the first process of the container, with which its namespace
// dies.
func (t *processTree) signal(s syscall.Signal) {
	if t.fd >= 0 {
		_ = unix.PidfdSendSignal(t.fd, s, nil, 0)
		return
	}
	_ = unix.Kill(t.init, s)
}

func (t *processTree) close() {
	if t.fd >= 0 {
		_ = unix.Close(t.fd)
	}
}

// stop signals every process to stop or to continue. The first process comes
// first, so that nothing in the container sees the others stopped.
func (t *processTree) stop(s syscall.Signal) error {
	known := map[int]bool{}
	for range 20 { // until there are no new ones
		pids := t.processes()
		if len(pids) == 0 {
			return errors.New("its processes have ended")
		}
		grown := false
		for _, pid := range pids {
			if !known[pid] {
				known[pid], grown = true, true
				_ = unix.Kill(pid, s)
			}
		}
		if !grown {
			return nil
		}
	}
	return errors.New("it starts processes faster than they can be stopped")
}
