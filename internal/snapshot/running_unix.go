//go:build unix

package snapshot

import (
	"errors"

	"golang.org/x/sys/unix"
)

// running reports whether the process exists.
func running(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
