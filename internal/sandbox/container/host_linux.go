package container

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mostProcesses is Podman's own default of that limit.
const mostProcesses = 32768

// ceilings are the most open files and processes that the caller itself may
// have: an engine of the same user cannot give more.
func ceilings() (files, processes int) {
	hard := func(resource, most int) int {
		var r unix.Rlimit
		if unix.Getrlimit(resource, &r) != nil {
			return 0
		}
		return int(min(r.Max, uint64(most)))
	}
	return hard(unix.RLIMIT_NOFILE, 1<<30), hard(unix.RLIMIT_NPROC, mostProcesses)
}

// hostKernel is what uname says of this machine's kernel, and its boot's ID.
func hostKernel() (kernel, boot string) {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "", ""
	}
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:]), strings.TrimSpace(string(id))
}

// pipeSize is asked for each of the channel's pipes, so that a large result
// needs few switches. The kernel may give less.
const pipeSize = 1 << 20

func growPipe(f *os.File) {
	// Not f.Fd, which would take the file from the runtime's poller.
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}
