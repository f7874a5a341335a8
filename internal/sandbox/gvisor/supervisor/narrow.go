//go:build linux && (amd64 || arm64)

package supervisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	syscalls "gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
)

// namespaces are the flags of clone(2) that make a namespace.
const namespaces = linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWNET |
	linux.CLONE_NEWIPC | linux.CLONE_NEWUTS | linux.CLONE_NEWCGROUP

// narrowSyscalls removes the system calls from gVisor's kernel that would give the
// guest a user namespace, and with it every capability inside that kernel: mounts
// without noexec, a FUSE server, packet sockets. None of that reaches the host, but
// it is more kernel than Python needs. gVisor has no setting for it, and a seccomp
// filter would answer clone3 with EPERM, at which libraries stop making threads. It
// must be called in the process that becomes the kernel, before the kernel starts.
func narrowSyscalls() {
	deny := func(err error) kernel.SyscallFn {
		return func(*kernel.Task, uintptr, arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			return 0, nil, err
		}
	}
	for _, table := range []*kernel.SyscallTable{syscalls.AMD64, syscalls.ARM64} {
		for number, call := range table.Table {
			switch call.Name {
			case "unshare", "setns", "mount", "umount2", "pivot_root", "chroot",
				"fsopen", "fsconfig", "fsmount", "fspick", "move_mount", "open_tree", "mount_setattr":
				call.Fn = deny(linuxerr.EPERM)
			case "clone3":
				// Its flags are in memory that another thread may change after
				// they were checked. Libraries fall back to clone.
				call.Fn = deny(linuxerr.ENOSYS)
			case "clone":
				clone := call.Fn
				call.Fn = func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
					if args[0].Uint64()&namespaces != 0 {
						return 0, nil, linuxerr.EPERM
					}
					return clone(t, sysno, args)
				}
			}
			table.Table[number] = call
		}
		table.Init() // again: registration initialised it
	}
}
