//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread reports whether the other end of a pipe or socket is closed.
func unread(f *os.File) bool {
	poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// closedPipe reports whether a write failed because its reader is gone.
func closedPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
