//go:build unix

package definitions

import (
	"os"
	"syscall"
)

// openFile does not wait for the other end of a named pipe.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
}

// errNotDir: a part of the path is a file, so that there is none below.
const errNotDir = syscall.ENOTDIR
