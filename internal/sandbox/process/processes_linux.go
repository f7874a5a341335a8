//go:build linux && (amd64 || arm64)

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// processes finds the processes of a run, from within the supervisor: all but
// itself if it is the first process of a namespace, those of the run's own user if
// it has one, and otherwise its descendants, including orphans, which it adopts.
type processes struct {
	all  bool
	uid  int // -1: the run has no user of its own
	user int // whose memory is looked at as that user; -1: as ourselves
}

// list finds the processes.
func (m *processes) list() []int {
	self := os.Getpid()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var pids []int
	parents := map[int]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil || pid == self {
			continue
		}
		switch {
		case m.all:
			pids = append(pids, pid)
		case m.uid >= 0:
			var st unix.Stat_t
			// The directory belongs to root while the process is not dumpable.
			if unix.Stat(name+"/task", &st) == nil && (int(st.Uid) == m.uid || userOf(pid) == m.uid) {
				pids = append(pids, pid)
			}
		default:
			if stat, err := supervise.ReadProcessStat(pid); err == nil {
				parents[pid] = stat.Parent
			}
		}
	}
	for pid := range parents {
		// A number that was reused meanwhile could form a cycle.
		for p, steps := pid, 0; p > 0 && steps < 1000; p, steps = parents[p], steps+1 {
			if parents[p] == self {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// userOf returns the real user of a process, -1 if it is gone.
func userOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return -1
	}
	_, rest, found := bytes.Cut(b, []byte("\nUid:"))
	if !found {
		return -1
	}
	uid, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		return -1
	}
	return uid
}

// signal sends a signal to all processes.
func (m *processes) signal(sig unix.Signal) error {
	var errs []error
	for _, pid := range m.list() {
		if err := unix.Kill(pid, sig); err != nil && err != unix.ESRCH {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stop stops all processes, including those that start meanwhile, and returns when
// none is running.
func (m *processes) stop() error {
	for try := range 1000 {
		if err := m.signal(unix.SIGSTOP); err != nil {
			return err
		}
		running := false
		for _, pid := range m.list() {
			if stat, err := supervise.ReadProcessStat(pid); err == nil && !strings.ContainsRune("TtZX", rune(stat.State)) {
				running = true
			}
		}
		if !running {
			return nil
		}
		if try > 10 {
			time.Sleep(time.Millisecond)
		}
	}
	return errors.New("processes start faster than they can be stopped, or wait for a disk")
}

// kill kills all processes, in one call if the kernel can.
func (m *processes) kill() {
	switch {
	case m.all:
		_ = unix.Kill(-1, unix.SIGKILL) // all but the first process, which this is
	case m.uid > 0:
		killUser(m.uid)
	default:
		// Stopped processes make no more children.
		_ = m.stop()
		_ = m.signal(unix.SIGKILL)
	}
}

// killUser kills every process of a user that this process may become.
func killUser(uid int) {
	onThread(func() {
		if becomeKiller(uid) {
			_ = unix.Kill(-1, unix.SIGKILL)
		}
	})
}

// becomeKiller lets the calling thread signal the user's processes without letting
// them signal it: its real and saved user are one that has no processes. If they
// were the run's user, its code could kill the thread, and with it this program.
func becomeKiller(uid int) bool {
	nobodys := uintptr(uid - firstUser + firstKiller)
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobodys, uintptr(uid), nobodys)
	return errno == 0
}

// onThread calls f on a thread that ends afterwards, because f changes it for good.
// It never uses the program's first thread, which does not end, and whose user
// counts as the program's.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // on another thread, while this one is locked
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

type sums struct {
	cpu    time.Duration
	memory int64
}

// measure sums over the processes. One that ends meanwhile is skipped: its time
// moves to the process that waited for it.
func (m *processes) measure(exact bool) (sums, error) {
	var out sums
	pids := m.list()
	for _, pid := range pids {
		if stat, err := supervise.ReadProcessStat(pid); err == nil {
			out.cpu += stat.CPU
			out.memory += stat.Resident
		}
	}
	if !exact {
		return out, nil
	}
	shares, err := asUser(m.user, func() (int64, error) {
		var sum int64
		for _, pid := range pids {
			share, err := proportional(pid)
			if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
				return 0, err
			}
			sum += share
		}
		return sum, nil
	})
	if err == nil {
		out.memory = shares
	}
	return out, nil
}

// asUser calls f on a thread that accesses files as the user: the kernel shows a
// process's memory to its own user, even if root lacks the privilege to see that of
// others. -1 means the current user.
func asUser(uid int, f func() (int64, error)) (n int64, err error) {
	if uid < 0 {
		return f()
	}
	onThread(func() {
		for _, call := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
			_, _, _ = unix.RawSyscall(call, uintptr(uid), 0, 0)
		}
		n, err = f()
	})
	return n, err
}

// proportional returns a process's resident memory, with its part of what it
// shares.
func proportional(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := bytes.Cut(b, []byte("\nPss:"))
	if !found {
		return 0, nil
	}
	kilobytes, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
	return kilobytes << 10, err
}
