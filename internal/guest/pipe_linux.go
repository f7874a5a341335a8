package guest

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// pipeSize is asked for on each pipe of the channel, so that a large reply or a
// burst of output needs fewer switches between the two sides.
const pipeSize = 1 << 20

const fSetPipeSize = 1031 // F_SETPIPE_SZ of linux/fcntl.h

// enlarge asks for larger pipe buffers. Nothing depends on it.
func enlarge(v any) {
	f, ok := v.(*os.File)
	if !ok {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, fSetPipeSize, pipeSize)
	})
}

// nonblocking returns w's descriptor if writing to it never blocks.
func nonblocking(w io.Writer) syscall.RawConn {
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
	return conn
}

// writeSome writes what the descriptor takes at once and returns what is left
// of parts. It does not change the arrays that parts points to.
func writeSome(conn syscall.RawConn, parts [][]byte) ([][]byte, error) {
	left := append([][]byte(nil), parts...)
	var failed error
	err := conn.Write(func(fd uintptr) bool {
		for len(left) > 0 {
			if len(left[0]) == 0 {
				left = left[1:]
				continue
			}
			n, err := syscall.Write(int(fd), left[0])
			switch {
			case errors.Is(err, syscall.EINTR):
			case errors.Is(err, syscall.EAGAIN):
				return true
			case err != nil:
				failed = err
				return true
			default:
				left[0] = left[0][n:]
			}
		}
		return true
	})
	if failed != nil {
		err = failed
	}
	return left, err
}
