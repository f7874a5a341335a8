//go:build linux && (amd64 || arm64)

package process

import (
	"maps"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/seccomp"
)

// Verdicts (linux/seccomp.h).
const (
	retErrno = unix.SECCOMP_RET_ERRNO
	retAllow = unix.SECCOMP_RET_ALLOW
)

// deniedCalls are calls that code does not need, and in which kernels often have
// faults or that reach beyond the run. They fail as if a privilege were missing.
var deniedCalls = []uint32{
	// The view of the file system.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT,
	unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_LISTMOUNT, unix.SYS_STATMOUNT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_FANOTIFY_INIT, unix.SYS_ACCT,
	// Namespaces.
	unix.SYS_UNSHARE, unix.SYS_SETNS,
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
	unix.SYS_PIDFD_GETFD, unix.SYS_PROCESS_MADVISE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	// The kernel.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_REBOOT, unix.SYS_SYSLOG,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_VHANGUP,
	unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
}

// absentCalls fail as if they did not exist, so that code falls back to others:
// memory that belongs to no process could not be counted, and a filter cannot read
// the flags of clone3.
var absentCalls = []uint32{
	unix.SYS_CLONE3, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SHMDT,
	unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN,
}

// modeArgs returns where calls have the mode of a file.
func modeArgs() map[uint32]uint32 {
	args := map[uint32]uint32{unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_OPENAT: 3, unix.SYS_MKNODAT: 2}
	maps.Copy(args, modeArgsHere)
	return args
}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// filter returns the program for code with or without Internet sockets. If the code
// shares this program's user, it gets no Unix sockets except pairs: Landlock does not
// keep it from the sockets of services that trust that user, such as a desktop's
// bus. Nor if it sees folders of the host: no mount keeps it from a socket in one.
func filter(sockets, sharedUser, folders bool) []unix.SockFilter {
	p := seccomp.Begin(retErrno | uint32(unix.ENOSYS))
	for _, nr := range append(deniedCalls, deniedHere...) {
		p.On(nr, retErrno|uint32(unix.EPERM))
	}
	for _, nr := range absentCalls {
		p.On(nr, retErrno|uint32(unix.ENOSYS))
	}
	p.Within(unix.SYS_CLONE, func(p *seccomp.Program) {
		p.Arg(0)
		p.And(newNamespaces)
		p.On(0, retAllow)
		p.Ret(retErrno | uint32(unix.EPERM))
	})
	if sharedUser {
		p.Within(unix.SYS_PRLIMIT64, func(p *seccomp.Program) {
			p.Arg(0)
			p.On(0, retAllow) // its own
			p.Ret(retErrno | uint32(unix.EPERM))
		})
	}
	if sharedUser || folders {
		p.Within(unix.SYS_SOCKETPAIR, func(p *seccomp.Program) {
			p.Arg(1)
			p.And(0xf)
			p.On(unix.SOCK_STREAM, retAllow) // of AF_UNIX alone there are pairs, and these stay pairs
			p.Ret(retErrno | uint32(unix.EPROTONOSUPPORT))
		})
	}
	if folders {
		// Files of the host must not get bits by which they run as their owner.
		p.On(unix.SYS_OPENAT2, retErrno|uint32(unix.ENOSYS)) // a filter cannot read its mode
		// Nor may code hold up others by locks on files that it can only read.
		p.On(unix.SYS_FLOCK, retErrno|uint32(unix.ENOSYS))
		p.Within(unix.SYS_FCNTL, func(p *seccomp.Program) {
			p.Arg(1)
			p.On(unix.F_SETLEASE, retErrno|uint32(unix.EPERM))
			p.Ret(retAllow)
		})
		p.Within(unix.SYS_RENAMEAT2, func(p *seccomp.Program) {
			p.Arg(4)
			p.And(unix.RENAME_WHITEOUT) // makes a device
			p.On(0, retAllow)
			p.Ret(retErrno | uint32(unix.EPERM))
		})
		for nr, arg := range modeArgs() {
			p.Within(nr, func(p *seccomp.Program) {
				p.Arg(arg)
				p.And(unix.S_ISUID | unix.S_ISGID)
				p.On(0, retAllow)
				p.Ret(retErrno | uint32(unix.EPERM))
			})
		}
	}
	p.Within(unix.SYS_SOCKET, func(p *seccomp.Program) { families(p, !sharedUser && !folders, sockets) })
	p.Within(unix.SYS_SOCKETPAIR, func(p *seccomp.Program) { families(p, true, false) })
	p.Within(unix.SYS_IOCTL, func(p *seccomp.Program) {
		p.Arg(1)
		p.On(unix.TIOCSTI, retErrno|uint32(unix.EPERM))
		p.On(unix.TIOCLINUX, retErrno|uint32(unix.EPERM))
		p.Ret(retAllow)
	})
	p.Within(unix.SYS_PERSONALITY, func(p *seccomp.Program) {
		p.Arg(0)
		for _, usual := range []uint32{0, 8, 0x20000, 0x20008, 0xffffffff} {
			p.On(usual, retAllow)
		}
		p.Ret(retErrno | uint32(unix.EPERM))
	})
	p.Ret(retAllow)
	return p
}

// families allows sockets between processes of the place, and Internet sockets if
// they are requested.
func families(p *seccomp.Program, local, internet bool) {
	p.Arg(0)
	if local {
		p.On(unix.AF_UNIX, retAllow)
	}
	if internet {
		p.On(unix.AF_INET, retAllow)
		p.On(unix.AF_INET6, retAllow)
		p.Within(unix.AF_NETLINK, func(p *seccomp.Program) {
			p.Arg(2)
			p.On(unix.NETLINK_ROUTE, retAllow)
			p.Ret(retErrno | uint32(unix.EAFNOSUPPORT))
		})
	}
	p.Ret(retErrno | uint32(unix.EAFNOSUPPORT))
}

// install applies the filter to the calling thread and to what it executes.
func install(p []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
