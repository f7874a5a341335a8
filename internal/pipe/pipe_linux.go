package pipe

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// size is requested for each enlarged pipe, so that a large message or a burst
// of output needs fewer switches between the two sides.
const size = 1 << 20

const fSetPipeSize = 1031 // F_SETPIPE_SZ of linux/fcntl.h

// Enlarge requests a larger buffer for a pipe. Nothing depends on it.
func Enlarge(v any) {
	f, ok := v.(*os.File)
	if !ok {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, fSetPipeSize, size)
	})
}

// A Writer writes what a pipe takes at once. Its caller must see to it that
// nothing else writes to the pipe meanwhile.
type Writer struct {
	conn   syscall.RawConn
	try    func(fd uintptr) bool
	rest   []byte // of what Write writes
	failed error
}

// NewWriter returns a Writer for w, or nil if writing to w may block.
func NewWriter(w io.Writer) *Writer {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	ready := false
	err = conn.Control(func(fd uintptr) {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
		ready = errno == 0 && flags&syscall.O_NONBLOCK != 0
	})
	if err != nil || !ready {
		return nil
	}
	made := &Writer{conn: conn}
	made.try = made.write // once: a call for each Write would be on the heap
	return made
}

// Write writes what the pipe takes at once and returns the rest. It does not
// change b.
func (w *Writer) Write(b []byte) (rest []byte, err error) {
	w.rest, w.failed = b, nil
	err = errors.Join(w.conn.Write(w.try), w.failed)
	rest, w.rest = w.rest, nil
	return rest, err
}

// write writes w.rest as far as the pipe takes it.
func (w *Writer) write(fd uintptr) bool {
	for len(w.rest) > 0 {
		n, err := syscall.Write(int(fd), w.rest)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return true
		case err != nil:
			w.failed = err
			return true
		default:
			w.rest = w.rest[n:]
		}
	}
	return true
}
