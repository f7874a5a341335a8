//go:build linux && (amd64 || arm64)

package host

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data: the lower half of each argument; both machines are
// little-endian.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
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

// program assembles a filter. Every jump skips exactly what its name says.
type program []unix.SockFilter

func (p *program) load(offset uint32) {
	*p = append(*p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

func (p *program) arg(n uint32) { p.load(dataArgs + 8*n) }

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

// within adds body for the call nr only. Every path through body ends with a verdict.
func (p *program) within(nr uint32, body func(*program)) {
	var inner program
	body(&inner)
	*p = append(*p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: uint8(len(inner)), K: nr})
	*p = append(*p, inner...)
}

// filter returns the filter of the process pid. Calls that are not listed do not
// exist.
func filter(pid int) []unix.SockFilter {
	var p program
	p.load(dataArch)
	p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch})
	p.ret(retKill) // another machine's calls, such as i386's, have other numbers
	p.load(dataNr)
	if otherABI != 0 {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 1, K: otherABI})
		p.ret(retKill)
	}
	for _, nr := range slices.Concat(allowed, allowedHere) {
		p.on(nr, retAllow)
	}
	for _, nr := range slices.Concat(forbidden, forbiddenHere) {
		p.on(nr, retKill)
	}
	for _, nr := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		p.within(nr, func(p *program) { // no memory becomes code
			p.arg(2)
			p.and(unix.PROT_EXEC)
			p.on(0, retAllow)
			p.ret(retKill)
		})
	}
	p.within(unix.SYS_CLONE, func(p *program) { // threads only
		const thread = unix.CLONE_THREAD | unix.CLONE_VM | unix.CLONE_SIGHAND
		p.arg(0)
		p.and(thread | unix.CLONE_PARENT | unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET)
		p.on(thread, retAllow)
		p.ret(retKill)
	})
	p.within(unix.SYS_TGKILL, func(p *program) { // its own threads
		p.arg(0)
		p.on(uint32(pid), retAllow)
		p.ret(retKill)
	})
	p.within(unix.SYS_FCNTL, func(p *program) {
		p.arg(1)
		for _, cmd := range []uint32{unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC} {
			p.on(cmd, retAllow)
		}
		p.ret(retDenied)
	})
	p.within(unix.SYS_PRCTL, func(p *program) {
		p.arg(0)
		p.on(prSetVMA, retAllow)
		p.ret(retDenied)
	})
	p.ret(retAbsent)
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
