package pipe

import (
	"errors"
	"fmt"
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
	if !nonblocking(conn) {
		return nil
	}
	made := &Writer{conn: conn}
	made.try = made.write // once: a call for each Write would be on the heap
	return made
}

// nonblocking reports whether a file returns from a read or write that would wait.
func nonblocking(conn syscall.RawConn) (is bool) {
	err := conn.Control(func(fd uintptr) {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
		is = errno == 0 && flags&syscall.O_NONBLOCK != 0
	})
	return err == nil && is
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

// Polled returns a reader of what r reads, which the runtime's poller waits for. A read
// of an inherited pipe blocks a thread, and what it has read is then worked on by
// another one, which has to be woken first. Only the caller must read from r. For
// something other than a pipe, or one that does not block, it returns r.
func Polled(r io.Reader) io.Reader {
	f, ok := r.(*os.File)
	if !ok {
		return r
	}
	conn, err := f.SyscallConn()
	if err != nil || nonblocking(conn) {
		return r
	}
	again := r
	_ = conn.Control(func(fd uintptr) {
		// Opened again, it does not change the flags of those who share it with this process.
		name := fmt.Sprintf("/proc/self/fd/%d", fd)
		if info, err := f.Stat(); err != nil || info.Mode().Type() != os.ModeNamedPipe {
			return
		}
		if opened, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			again = opened
		}
	})
	return again
}
