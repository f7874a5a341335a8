//go:build linux && (amd64 || arm64)

package process

import (
	"maps"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, and verdicts (linux/seccomp.h).
const (
	dataNr   = 0
	dataArch = 4
	dataArg0 = 16 // the lower half of each; both machines are little-endian
	dataArg1 = 24
	dataArg2 = 32
	dataArg3 = 40
	dataArg4 = 48

	retKill  = 0x80000000
	retErrno = 0x00050000
	retAllow = 0x7fff0000

	setModeFilter = 1
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
	args := map[uint32]uint32{unix.SYS_FCHMOD: dataArg1, unix.SYS_FCHMODAT: dataArg2, unix.SYS_FCHMODAT2: dataArg2, unix.SYS_OPENAT: dataArg3, unix.SYS_MKNODAT: dataArg2}
	maps.Copy(args, modeArgsHere)
	return args
}

const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// program assembles a filter. Every jump skips exactly the next instruction.
type program []unix.SockFilter

func (p *program) load(offset uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

func (p *program) and(mask uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

func (p *program) ret(verdict uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict})
}

// on adds: return verdict if the loaded value equals k.
func (p *program) on(k, verdict uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: k})
	p.ret(verdict)
}

// within adds body for the system call nr only. Every path through body must end
// with a verdict.
func (p *program) within(nr uint32, body func(*program)) {
	var inner program
	body(&inner)
	*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(inner)), K: nr})
	*p = append(*p, inner...)
}

// filter returns the program for code with or without Internet sockets. If the code
// shares this program's user, it gets no Unix sockets except pairs: Landlock does not
// keep it from the sockets of services that trust that user, such as a desktop's
// bus. Nor if it sees folders of the host: no mount keeps it from a socket in one.
func filter(sockets, sharedUser, folders bool) []unix.SockFilter {
	var p program
	p.load(dataArch)
	p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch})
	p.ret(retKill) // another machine's calls, such as i386's, have other numbers
	p.load(dataNr)
	if otherABI != 0 {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: otherABI})
		p.ret(retErrno | uint32(unix.ENOSYS))
	}
	for _, nr := range append(deniedCalls, deniedHere...) {
		p.on(nr, retErrno|uint32(unix.EPERM))
	}
	for _, nr := range absentCalls {
		p.on(nr, retErrno|uint32(unix.ENOSYS))
	}
	p.within(unix.SYS_CLONE, func(p *program) {
		p.load(dataArg0)
		p.and(newNamespaces)
		p.on(0, retAllow)
		p.ret(retErrno | uint32(unix.EPERM))
	})
	if sharedUser {
		p.within(unix.SYS_PRLIMIT64, func(p *program) {
			p.load(dataArg0)
			p.on(0, retAllow) // its own
			p.ret(retErrno | uint32(unix.EPERM))
		})
	}
	if sharedUser || folders {
		p.within(unix.SYS_SOCKETPAIR, func(p *program) {
			p.load(dataArg1)
			p.and(0xf)
			p.on(unix.SOCK_STREAM, retAllow) // of AF_UNIX alone there are pairs, and these stay pairs
			p.ret(retErrno | uint32(unix.EPROTONOSUPPORT))
		})
	}
	if folders {
		// Files of the host must not get bits by which they run as their owner.
		p.on(unix.SYS_OPENAT2, retErrno|uint32(unix.ENOSYS)) // a filter cannot read its mode
		// Nor may code hold up others by locks on files that it can only read.
		p.on(unix.SYS_FLOCK, retErrno|uint32(unix.ENOSYS))
		p.within(unix.SYS_FCNTL, func(p *program) {
			p.load(dataArg1)
			p.on(unix.F_SETLEASE, retErrno|uint32(unix.EPERM))
			p.ret(retAllow)
		})
		p.within(unix.SYS_RENAMEAT2, func(p *program) {
			p.load(dataArg4)
			p.and(unix.RENAME_WHITEOUT) // makes a device
			p.on(0, retAllow)
			p.ret(retErrno | uint32(unix.EPERM))
		})
		for nr, arg := range modeArgs() {
			p.within(nr, func(p *program) {
				p.load(arg)
				p.and(unix.S_ISUID | unix.S_ISGID)
				p.on(0, retAllow)
				p.ret(retErrno | uint32(unix.EPERM))
			})
		}
	}
	p.within(unix.SYS_SOCKET, func(p *program) { families(p, !sharedUser && !folders, sockets) })
	p.within(unix.SYS_SOCKETPAIR, func(p *program) { families(p, true, false) })
	p.within(unix.SYS_IOCTL, func(p *program) {
		p.load(dataArg1)
		p.on(unix.TIOCSTI, retErrno|uint32(unix.EPERM))
		p.on(unix.TIOCLINUX, retErrno|uint32(unix.EPERM))
		p.ret(retAllow)
	})
	p.within(unix.SYS_PERSONALITY, func(p *program) {
		p.load(dataArg0)
		for _, usual := range []uint32{0, 8, 0x20000, 0x20008, 0xffffffff} {
			p.on(usual, retAllow)
		}
		p.ret(retErrno | uint32(unix.EPERM))
	})
	p.ret(retAllow)
	return p
}

// families allows sockets between processes of the place, and Internet sockets if
// they are requested.
func families(p *program, local, internet bool) {
	p.load(dataArg0)
	if local {
		p.on(unix.AF_UNIX, retAllow)
	}
	if internet {
		p.on(unix.AF_INET, retAllow)
		p.on(unix.AF_INET6, retAllow)
		var route program
		route.load(dataArg2)
		route.on(unix.NETLINK_ROUTE, retAllow)
		route.ret(retErrno | uint32(unix.EAFNOSUPPORT))
		*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(route)), K: unix.AF_NETLINK})
		*p = append(*p, route...)
	}
	p.ret(retErrno | uint32(unix.EAFNOSUPPORT))
}

// install applies the filter to the calling thread and to what it executes.
func install(p []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, setModeFilter, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}
