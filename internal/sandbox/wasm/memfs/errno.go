package memfs

import (
	"io/fs"
	"strconv"
)

// An Errno is why an operation failed. Its values are the error numbers of WASI
// preview 1.
type Errno uint16

// The errors of this package.
const (
	ErrBadFile     Errno = 8  // EBADF
	ErrBusy        Errno = 10 // EBUSY
	ErrExist       Errno = 20 // EEXIST
	ErrTooBig      Errno = 22 // EFBIG
	ErrInvalid     Errno = 28 // EINVAL
	ErrIO          Errno = 29 // EIO
	ErrIsDir       Errno = 31 // EISDIR
	ErrLoop        Errno = 32 // ELOOP
	ErrNameTooLong Errno = 37 // ENAMETOOLONG
	ErrNotExist    Errno = 44 // ENOENT
	ErrNoSpace     Errno = 51 // ENOSPC
	ErrNotDir      Errno = 54 // ENOTDIR
	ErrNotEmpty    Errno = 55 // ENOTEMPTY
	ErrPermission  Errno = 63 // EPERM
	ErrReadOnly    Errno = 69 // EROFS
	ErrCrossVolume Errno = 75 // EXDEV
)

func (e Errno) Error() string {
	switch e {
	case ErrBadFile:
		return "bad file descriptor"
	case ErrBusy:
		return "device or resource busy"
	case ErrExist:
		return "file exists"
	case ErrTooBig:
		return "file too large"
	case ErrInvalid:
		return "invalid argument"
	case ErrIO:
		return "input/output error"
	case ErrIsDir:
		return "is a directory"
	case ErrLoop:
		return "too many levels of symbolic links"
	case ErrNameTooLong:
		return "file name too long"
	case ErrNotExist:
		return "no such file or directory"
	case ErrNoSpace:
		return "no space left on device"
	case ErrNotDir:
		return "not a directory"
	case ErrNotEmpty:
		return "directory not empty"
	case ErrPermission:
		return "operation not permitted"
	case ErrReadOnly:
		return "read-only file system"
	case ErrCrossVolume:
		return "invalid cross-device link"
	}
	return "error number " + strconv.Itoa(int(e))
}

// Is makes errors.Is(err, fs.ErrNotExist) and the like work.
func (e Errno) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e == ErrNotExist
	case fs.ErrExist:
		return e == ErrExist || e == ErrNotEmpty
	case fs.ErrPermission:
		return e == ErrPermission || e == ErrReadOnly
	case fs.ErrInvalid:
		return e == ErrInvalid
	}
	return false
}
