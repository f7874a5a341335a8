package supervise

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is requested for each pipe. The kernel may give less.
const pipeSize = 1 << 20

func growPipe(f *os.File) {
	// Not f.Fd, which would take the file from the runtime's poller.
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
