//go:build unix

package definitions

import (
	"os"
	"syscall"
)

// openFile opens a file without waiting for the other end of a named pipe.
func openFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
}

// errNotDir means that a part of the path is a file.
const errNotDir = syscall.ENOTDIR
