//go:build linux

package machine

import (
	"context"
	"errors"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/wasi"
)

// A wakeup lets a session's goroutine wait, and others wake it.
type wakeup struct {
	event int // an eventfd
	stdin syscall.RawConn
	fd    int // of stdin
	// pollable: the goroutine can wait for stdin without a thread.
	file *os.File
}

// open prepares waiting for stdin.
func (w *wakeup) open(stdin *os.File) (err error) {
	if w.stdin, err = stdin.SyscallConn(); err != nil {
		return err
	}
	if err := w.stdin.Control(func(fd uintptr) { w.fd = int(fd) }); err != nil {
		return err
	}
	if w.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	if stdin.SetReadDeadline(time.Time{}) == nil {
		w.file = stdin
	}
	return nil
}

// close releases the wakeup. No other goroutine may ring any more.
func (w *wakeup) close() {
	if w.stdin != nil && w.event >= 0 {
		unix.Close(w.event)
	}
	w.event = -1
}

// ring ends the wait that is under way, or else the next one. The caller holds the
// session's lock, and the session has not ended.
func (w *wakeup) ring() {
	if w.stdin == nil || w.event < 0 {
		return
	}
	var one = [8]byte{1} // in the byte order of any processor it is not zero
	_, _ = unix.Write(w.event, one[:])
	if w.file != nil {
		_ = w.file.SetReadDeadline(time.Unix(1, 0))
	}
}

// silence forgets the rings so far.
func (w *wakeup) silence() {
	var count [8]byte
	_, _ = unix.Read(w.event, count[:])
}

// idleAfter is how long a session waits before it gives back what it keeps to go on
// without delay.
const idleAfter = 50 * time.Millisecond

// park waits until stdin can be read or the time has come, and returns true, or until
// another goroutine rings. The zero time never comes. After a while it calls idle.
func (w *wakeup) park(until time.Time, idle func()) (due bool) {
	soon := time.Now().Add(idleAfter)
	if until.IsZero() || until.After(soon) {
		switch w.wait(soon) {
		case unix.POLLIN:
			return true
		case unix.POLLPRI:
			return false
		}
		idle()
	}
	return w.wait(until) != unix.POLLPRI
}

// wait waits once: POLLIN says that stdin can be read, POLLPRI that another goroutine
// rang, 0 that the time has come.
func (w *wakeup) wait(until time.Time) int16 {
	if w.file == nil {
		return w.poll(w.fd, unix.POLLIN, until)
	}
	if err := w.file.SetReadDeadline(until); err != nil {
		return w.poll(w.fd, unix.POLLIN, until)
	}
	var got int16
	err := w.stdin.Read(func(fd uintptr) bool {
		got = w.poll(int(fd), unix.POLLIN, time.Unix(1, 0))
		return got != 0
	})
	switch {
	case got != 0:
		return got
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The deadline, or a ring, which has set one in the past.
		return w.poll(w.fd, unix.POLLIN, time.Unix(1, 0))
	default:
		return w.poll(w.fd, unix.POLLIN, until)
	}
}

// poll waits on this thread for a descriptor, or for the time alone if it is negative.
// The result is as wait's.
func (w *wakeup) poll(fd int, events int16, until time.Time) int16 {
	fds := []unix.PollFd{{Fd: int32(w.event), Events: unix.POLLIN}, {Fd: int32(fd), Events: events}}
	for {
		ms := -1
		if !until.IsZero() {
			left := time.Until(until)
			ms = int(min(max((left+time.Millisecond-1)/time.Millisecond, 0), math.MaxInt32))
		}
		n, err := unix.Poll(fds, ms)
		switch {
		case err != nil && err != unix.EINTR:
			return unix.POLLIN // let the reader find out
		case err == nil && n == 0:
			return 0
		case err != nil:
		case fds[0].Revents != 0:
			w.silence()
			return unix.POLLPRI
		default:
			return unix.POLLIN
		}
	}
}

// Wait implements wasi.Waiter. An interrupt that came before may have found the
// interpreter on its way here, where it does not look any more: it ends the wait. If the
// interpreter has noticed it already, it waits again.
func (s *Session) Wait(_ context.Context, fd int, write bool, timeout time.Duration) wasi.Outcome {
	var until time.Time
	if timeout >= 0 {
		until = time.Now().Add(timeout)
	}
	events := int16(unix.POLLIN)
	if write {
		events = unix.POLLOUT
	}
	for {
		if s.events.Load()&^workEvent != 0 {
			s.attend()
		}
		if s.unheard {
			s.unheard = false
			return wasi.Interrupted
		}
		switch s.wake.poll(fd, events, until) {
		case unix.POLLIN:
			return wasi.Ready
		case 0:
			return wasi.TimedOut
		}
	}
}

// CPUTime returns the processor time that the session has used.
func (s *Session) CPUTime() time.Duration { return s.clock.total() }

// sleep sleeps, and does what others want of the session meanwhile.
func (s *Session) sleep(d time.Duration) {
	unheard := false
	for until := time.Now().Add(d); time.Until(until) > 0; {
		// An interrupt is passed on at once, and does not end the sleep.
		unheard = s.Wait(s.ctx, -1, false, time.Until(until)) == wasi.Interrupted || unheard
	}
	s.unheard = s.unheard || unheard
}
