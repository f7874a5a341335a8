package procfs

import "syscall"

// needed is what gVisor reads.
const needed = "/proc/sys/vm/mmap_min_addr"

var _ = check()

func check() bool {
	fd, err := syscall.Open(needed, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err == nil {
		return syscall.Close(fd) == nil
	}
	text := "sallyport: cannot open " + needed + ": " + err.Error() +
		"\nSallyport needs /proc. If it is not mounted here, as in a chroot: mount -t proc proc /proc. If a container hides it, docker run --security-opt systempaths=unconfined or podman run --security-opt unmask=ALL shows it.\n"
	_, _ = syscall.Write(2, []byte(text))
	syscall.Exit(125)
	return false
}
