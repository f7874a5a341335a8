//go:build unix

package wasi

import (
	"errors"

	"golang.org/x/sys/unix"
)

// readFD reads from a descriptor of this process.
func readFD(fd int, p []byte) (int, Errno) { return again(fd, p, unix.Read) }

// writeFD writes to a descriptor of this process.
func writeFD(fd int, p []byte) (int, Errno) { return again(fd, p, unix.Write) }

// again repeats a call that a signal to this process has interrupted.
func again(fd int, p []byte, do func(int, []byte) (int, error)) (int, Errno) {
	for {
		n, err := do(fd, p)
		switch {
		case err == nil:
			return n, success
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, errAgain
		case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET):
			return 0, errPipe
		default:
			return 0, errIO
		}
	}
}
