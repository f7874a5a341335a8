//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread says whether a pipe or socket has nobody at its other end.
func unread(f *os.File) bool {
	poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// closedPipe says of a write's error that nobody reads what is written.
func closedPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
