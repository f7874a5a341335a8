package container

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// mostProcesses is Podman's own default limit.
const mostProcesses = 32768

// ceilings returns the caller's own hard limits on open files and processes: an
// engine of the same user cannot set higher ones.
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

// hostKernel returns what uname reports about this machine's kernel, and the boot
// ID.
func hostKernel() (kernel, boot string) {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "", ""
	}
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Version[:]), strings.TrimSpace(string(id))
}
