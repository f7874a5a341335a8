//go:build unix

package snapshot

import (
	"errors"

	"golang.org/x/sys/unix"
)

// running says whether there is such a process.
func running(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
