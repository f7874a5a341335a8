package container

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/sandbox"
)

// tree is all processes of a container that has no control groups: the
// descendants of its first process, which is the first of a process namespace,
// so that nothing leaves the tree. The owner of the container's user namespace
// may look at them, and signal them.
type tree struct {
	init int
	fd   int // a pidfd: the number may come to mean another process; -1 where there is none

	mu   sync.Mutex
	cpu  map[int]time.Duration // of processes, by number, for those that end
	gone time.Duration
}

func newTree(pid int) *tree {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		fd = -1
	}
	return &tree{init: pid, fd: fd, cpu: map[int]time.Duration{}}
}

// watchable says whether the process and its children can be looked at and
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
func (t *tree) processes() (pids []int) {
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

// usage sums over the processes. The time of those that ended between two
// looks, and that nobody waited for, is what was last seen of them.
func (t *tree) usage() (sandbox.Usage, error) {
	pids := t.processes()
	if len(pids) == 0 {
		return sandbox.Usage{}, errors.New("its processes have ended")
	}
	u := sandbox.Usage{CPU: t.time(pids), MemoryBytes: t.memory(pids), PeakBytes: -1}
	return u, nil
}

// time never falls: a process's own time moves to its parent when that waits
// for it, and is then counted there.
func (t *tree) time(pids []int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sum time.Duration
	for _, pid := range pids {
		if own, err := cpuTime(pid); err == nil {
			sum += own
		}
	}
	t.gone = max(t.gone, sum)
	return t.gone
}

// clockTick is the unit of times in /proc, 100 Hz on every architecture that
// containers run on.
const clockTick = 10 * time.Millisecond

// cpuTime is utime+stime+cutime+cstime of proc(5) stat.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// The command name, in parentheses, may hold anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 15 {
		return 0, errors.New("short stat")
	}
	var ticks int64
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// memory is what the processes have of their own and together, and what their
// files in memory take.
func (t *tree) memory(pids []int) int64 {
	var sum int64
	for _, pid := range pids {
		sum += ownMemory(pid)
	}
	return sum + t.files(pids)
}

// ownMemory is a process's proportional share of memory that no file on disk
// stands for.
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

// resident is more than what a process has of its own, and cheap to read.
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

// inodeBytes is about what the kernel needs for a file in memory beside its
// content.
const inodeBytes = 1 << 10

// files is what files in memory take: those of the container's file systems,
// and those that have no name and are only held open.
func (t *tree) files(pids []int) int64 {
	var sum int64
	root := "/proc/" + strconv.Itoa(t.init) + "/root"
	for _, dir := range []string{"/workspace", "/tmp", "/dev/shm"} {
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

// sampling is how often the watcher looks. Whoever fills memory as fast as it
// can is some hundred MB over the limit by then.
const sampling = 20 * time.Millisecond

// watch ends the container when it takes more than its limits, until g ends.
func (t *tree) watch(g *gauge) {
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

// over says whether the processes take more than limit. What is cheap to read
// is looked at each time, the rest when that is not enough to tell.
func (t *tree) over(pids []int, limit int64, thorough bool) bool {
	var most int64
	for _, pid := range pids {
		most += resident(pid)
	}
	if most <= limit && !thorough {
		return false
	}
	return most+t.files(pids) > limit && t.memory(pids) > limit
}

// signal signals the first process of the container. A namespace dies with it.
func (t *tree) signal(s syscall.Signal) {
	if t.fd >= 0 {
		_ = unix.PidfdSendSignal(t.fd, s, nil, 0)
		return
	}
	_ = unix.Kill(t.init, s)
}

func (t *tree) close() {
	if t.fd >= 0 {
		_ = unix.Close(t.fd)
	}
}

// stop stops every process, or has it go on. The first one is stopped first,
// so that nobody in the container sees the others stopped.
func (t *tree) stop(s syscall.Signal) error {
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
