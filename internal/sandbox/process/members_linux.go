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
	"time"

	"golang.org/x/sys/unix"
)

// members are the processes of a run, as the stage finds them: all but itself
// where it is the first process of a namespace, those of the run's own user
// where it has one, and its descendants otherwise, to which orphans return.
type members struct {
	all  bool
	uid  int // -1: the run has no user of its own
	user int // whose memory is looked at as that user; -1: as ourselves
}

// tick is the unit of CPU times in /proc, which is the same for all of user
// space.
const tick = 10 * time.Millisecond

// list finds the processes.
func (m *members) list() []int {
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
			// The directory belongs to root while the process cannot be dumped.
			if unix.Stat(name+"/task", &st) == nil && (int(st.Uid) == m.uid || userOf(pid) == m.uid) {
				pids = append(pids, pid)
			}
		default:
			if f := statFields(pid); len(f) > 1 {
				parents[pid], _ = strconv.Atoi(string(f[1]))
			}
		}
	}
	for pid := range parents {
		// A number that was given anew meanwhile could make a circle.
		for p, steps := pid, 0; p > 0 && steps < 1000; p, steps = parents[p], steps+1 {
			if parents[p] == self {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// userOf is the real user of a process, -1 where it is gone.
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

// signal sends to all processes.
func (m *members) signal(sig unix.Signal) error {
	var errs []error
	for _, pid := range m.list() {
		if err := unix.Kill(pid, sig); err != nil && err != unix.ESRCH {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stop stops all processes, also those that are born meanwhile, and returns
// when none runs any more.
func (m *members) stop() error {
	for try := range 1000 {
		if err := m.signal(unix.SIGSTOP); err != nil {
			return err
		}
		running := false
		for _, pid := range m.list() {
			if f := statFields(pid); len(f) > 0 && !bytes.ContainsAny(f[0], "TtZX") {
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
	return errors.New("processes are born faster than they can be stopped, or wait for a disk")
}

// kill ends all processes, at once where the kernel can.
func (m *members) kill() {
	switch {
	case m.all:
		_ = unix.Kill(-1, unix.SIGKILL) // all but the first process, which this is
	case m.uid > 0:
		killUser(m.uid)
	default:
		// Stopped ones have no more children.
		_ = m.stop()
		_ = m.signal(unix.SIGKILL)
	}
}

// killUser ends every process of a user that this one may become.
func killUser(uid int) {
	onThread(func() {
		if becomeKiller(uid) {
			_ = unix.Kill(-1, unix.SIGKILL)
		}
	})
}

// becomeKiller makes of the calling thread one that may signal the user's
// processes, and that they may not: its real and its saved user are one that
// nobody has. If they were the run's, its code could end the thread, and with
// it this program.
func becomeKiller(uid int) bool {
	nobodys := uintptr(uid - firstUser + firstKiller)
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobodys, uintptr(uid), nobodys)
	return errno == 0
}

// onThread calls f on a thread that ends with it, as what f makes of it has no
// way back. That is never the program's first, which does not end, and whose
// user the kernel takes for the program's.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onThread(f) // while this one is taken, on another
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

// measure adds up. A process that ends meanwhile is left out: its time moves
// to whoever waited for it.
func (m *members) measure(exact bool) (sums, error) {
	var out sums
	pids := m.list()
	for _, pid := range pids {
		f := statFields(pid)
		if len(f) < 22 {
			continue
		}
		for _, i := range []int{11, 12, 13, 14} {
			n, _ := strconv.ParseInt(string(f[i]), 10, 64)
			out.cpu += time.Duration(n) * tick
		}
		pages, _ := strconv.ParseInt(string(f[21]), 10, 64)
		out.memory += pages * int64(os.Getpagesize())
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

// statFields are the fields of proc(5) stat from the state on; the name before
// it may hold anything.
func statFields(pid int) [][]byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
}

// asUser calls f on a thread that looks at files as the user: the kernel shows
// a process's memory to its own user, also where root lacks the privilege to
// see that of others. -1 is as we are.
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

// proportional is what a process has resident, its part of what it shares.
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
