package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize for a program's output: a large result then takes fewer switches
// between it and us. Memory is taken only while it is full.
const pipeSize = 256 << 10

// widen asks for a larger pipe; refused (the user's quota is used up), the
// default does.
func widen(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
