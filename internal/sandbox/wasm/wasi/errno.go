package wasi

import (
	"errors"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/memfs"
)

// Errno is an error number of WASI preview 1.
type Errno = memfs.Errno

// The error numbers of this package.
const (
	success         Errno = 0
	errTooLong      Errno = 1 // E2BIG
	errAgain        Errno = 6
	errBadFile            = memfs.ErrBadFile
	errFault        Errno = 21
	errInterrupted  Errno = 27
	errInvalid            = memfs.ErrInvalid
	errIO                 = memfs.ErrIO
	errTooManyFiles Errno = 33
	errNameTooLong        = memfs.ErrNameTooLong
	errNotDir             = memfs.ErrNotDir
	errPipe         Errno = 64
	errSeekPipe     Errno = 70
)

// number returns the error number of an error of package memfs.
func number(err error) Errno {
	if err == nil {
		return success
	}
	if errno, ok := errors.AsType[memfs.Errno](err); ok {
		return errno
	}
	return errIO
}
