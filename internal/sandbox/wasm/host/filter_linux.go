//go:build linux && (amd64 || arm64)

package host

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/seccomp"
)

// Verdicts.
const (
	retKill   = unix.SECCOMP_RET_KILL_PROCESS
	retAllow  = unix.SECCOMP_RET_ALLOW
	retAbsent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	retDenied = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// allowed are the calls without conditions: what Go's runtime needs to schedule, wait
// and manage memory, and what sessions need to use descriptors that they have.
var allowed = []uint32{
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES,
	unix.SYS_GETTIMEOFDAY, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETRANDOM,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRUSAGE,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_LSEEK,
	unix.SYS_FSTAT, unix.SYS_FTRUNCATE, unix.SYS_CLOSE, unix.SYS_RECVMSG,
	unix.SYS_PPOLL, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE,
}

// forbidden end the process: nothing in it makes them, so something else does. They
// are the ways to files, sockets, programs and other processes.
var forbidden = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_MEMFD_CREATE,
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD,
	unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_KEYCTL,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD,
}

// prSetVMA names areas of memory: the runtime does it for people who look at them.
const prSetVMA = 0x53564d41

// filter returns the filter of the process pid. Calls that are not listed do not
// exist.
func filter(pid int) []unix.SockFilter {
	p := seccomp.Begin(retKill)
	for _, nr := range slices.Concat(allowed, allowedHere) {
		p.On(nr, retAllow)
	}
	for _, nr := range slices.Concat(forbidden, forbiddenHere) {
		p.On(nr, retKill)
	}
	for _, nr := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		p.Within(nr, func(p *seccomp.Program) { // no memory becomes code
			p.Arg(2)
			p.And(unix.PROT_EXEC)
			p.On(0, retAllow)
			p.Ret(retKill)
		})
	}
	p.Within(unix.SYS_CLONE, func(p *seccomp.Program) { // threads only
		const thread = unix.CLONE_THREAD | unix.CLONE_VM | unix.CLONE_SIGHAND
		p.Arg(0)
		p.And(thread | unix.CLONE_PARENT | unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET)
		p.On(thread, retAllow)
		p.Ret(retKill)
	})
	p.Within(unix.SYS_TGKILL, func(p *seccomp.Program) { // its own threads
		p.Arg(0)
		p.On(uint32(pid), retAllow)
		p.Ret(retKill)
	})
	p.Within(unix.SYS_FCNTL, func(p *seccomp.Program) {
		p.Arg(1)
		for _, cmd := range []uint32{unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC} {
			p.On(cmd, retAllow)
		}
		p.Ret(retDenied)
	})
	p.Within(unix.SYS_PRCTL, func(p *seccomp.Program) {
		p.Arg(0)
		p.On(prSetVMA, retAllow)
		p.Ret(retDenied)
	})
	p.Ret(retAbsent)
	return p
}

// install applies a filter to all threads of this process. no_new_privs is set on
// each of them by the same call.
func install(p []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	thread, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	if thread != 0 {
		return fmt.Errorf("seccomp: thread %d has another filter", thread)
	}
	return nil
}
