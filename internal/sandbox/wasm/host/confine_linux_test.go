//go:build linux && (amd64 || arm64)

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tryEnv has the test binary make one attempt and say whether it succeeded.
// confinedEnv has it give up its privileges before: all of them, or what Landlock takes.
const (
	tryEnv      = "SALLYPORT_TEST_TRY"
	confinedEnv = "SALLYPORT_TEST_CONFINED"
)

func TestMain(m *testing.M) {
	switch name := os.Getenv(tryEnv); name {
	case "":
	case "inherited":
		os.Exit(inherited())
	default:
		os.Exit(try(name))
	}
	os.Exit(m.Run())
}

// place is what attempts find on the host.
type place struct {
	file   string // one that can be read
	socket string // where somebody listens
	victim int    // a process that can be killed
}

// attempts are what a process must not be able to do once it is confined.
var attempts = map[string]func(place) error{
	"open a file":             func(p place) error { return done(unix.Open(p.file, unix.O_RDONLY, 0)) },
	"make a file":             func(p place) error { return done(unix.Open(p.file+".new", unix.O_RDWR|unix.O_CREAT, 0o600)) },
	"open its own memory":     func(place) error { return done(unix.Open("/proc/self/mem", unix.O_RDWR, 0)) },
	"open a directory":        func(place) error { return done(unix.Open("/", unix.O_PATH, 0)) },
	"make a memory file":      func(place) error { return done(unix.MemfdCreate("x", 0)) },
	"make an Internet socket": func(place) error { return done(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)) },
	"make a local socket":     func(place) error { return done(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)) },
	"make a pair of sockets":  func(place) error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"send a descriptor": func(place) error {
		return unix.Sendmsg(pair()[0], []byte("x"), unix.UnixRights(0), nil, 0)
	},
	"bind to a port": func(place) error { return unix.Bind(internet(), &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) },
	"connect":        func(p place) error { return unix.Connect(spare(), &unix.SockaddrUnix{Name: p.socket}) },
	"run a program": func(place) error {
		// It takes this process's place, and answers in its name.
		return unix.Exec("/bin/sh", []string{"sh", "-c", "echo worked"}, nil)
	},
	"fork": func(place) error {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		if pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return nil
	},
	"trace a process": func(p place) error { return unix.PtraceSeize(p.victim) },
	"read another process's memory": func(p place) error {
		b := make([]byte, 1)
		_, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &b[0], Len: 1}}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&b[0])), Len: 1}}, 0)
		return err
	},
	"kill a process":  func(p place) error { return unix.Kill(p.victim, 0) },
	"signal a thread": func(p place) error { return unix.Tgkill(p.victim, p.victim, 0) },
	"hold a process":  func(p place) error { return done(unix.PidfdOpen(p.victim, 0)) },
	"make memory with code": func(place) error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
		return err
	},
	"make memory code": func(place) error {
		return unix.Mprotect(area(), unix.PROT_READ|unix.PROT_EXEC)
	},
	"leave for a namespace": func(place) error { return unix.Unshare(unix.CLONE_FILES | unix.CLONE_FS) },
	"remove a file":         func(p place) error { return unix.Unlink(p.file) },
	"list the host":         func(place) error { return unix.Uname(new(unix.Utsname)) },
	"raise a limit":         func(place) error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) },
	"become dumpable":       func(place) error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },
	"change a descriptor's owner": func(place) error {
		_, err := unix.FcntlInt(0, unix.F_SETOWN, os.Getpid())
		return err
	},
}

// prepared are things that an attempt needs and that a confined process cannot make.
var (
	pair     = sync.OnceValue(func() [2]int { p, _ := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return p })
	spare    = sync.OnceValue(func() int { fd, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return fd })
	internet = sync.OnceValue(func() int { fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return fd })
	area     = sync.OnceValue(func() []byte {
		b, _ := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		return b
	})
)

func done(fd int, err error) error {
	_ = fd
	return err
}

// try makes one attempt in this process.
func try(name string) int {
	time.Local = time.UTC
	var p place
	if _, err := fmt.Sscan(os.Getenv("PLACE"), &p.file, &p.socket, &p.victim); err != nil {
		fmt.Println("place:", err)
		return 2
	}
	pair()
	spare()
	internet()
	area()
	if os.Getenv(confinedEnv) != "" {
		busy := make(chan struct{}) // confinement reaches threads that exist already
		for range 4 {
			go func() { runtime.LockOSThread(); <-busy }()
		}
		confine := Confine
		if os.Getenv(confinedEnv) == byLandlock {
			confine = onlyLandlock
		}
		if _, err := confine(); err != nil {
			fmt.Println("confine:", err)
			return 2
		}
	}
	result := make(chan error)
	// On a thread of its own, which the kernel confines like all others.
	go func() { runtime.LockOSThread(); result <- attempts[name](p) }()
	if err := <-result; err != nil {
		fmt.Println("refused:", err)
		return 1
	}
	fmt.Println("worked")
	return 0
}

// How an attempt is confined.
const (
	byAll      = "all"
	byLandlock = "landlock"
)

// onlyLandlock confines the process by Landlock and nothing else.
func onlyLandlock() ([]string, error) {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return nil, errno
	}
	_, err := landlock()
	return nil, err
}

// TestConfinement makes every attempt twice: before confinement it works, or being
// refused would prove nothing, and after it does not.
func TestConfinement(t *testing.T) {
	needAllThreads(t)
	for name := range attempts {
		t.Run(name, func(t *testing.T) { refused(t, name, byAll) })
	}
}

// TestLandlock makes attempts that Landlock alone has to refuse, should the filter of
// system calls have a gap.
func TestLandlock(t *testing.T) {
	needAllThreads(t)
	version := landlockVersion()
	if version == 0 {
		t.Skip("this kernel has no Landlock")
	}
	for name, since := range map[string]int{
		"open a file": 1, "make a file": 1, "remove a file": 1, "open its own memory": 1, "run a program": 1, "trace a process": 1,
		"bind to a port": 4, "kill a process": 6, "signal a thread": 6,
	} {
		t.Run(name, func(t *testing.T) {
			if version < since {
				return
			}
			refused(t, name, byLandlock)
		})
	}
}

func needAllThreads(t *testing.T) {
	t.Helper()
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); errno != 0 {
		t.Skip("a program that uses cgo cannot confine all of its threads: set CGO_ENABLED=0")
	}
}

// refused fails the test unless an attempt works, and does not once the process is
// confined.
func refused(t *testing.T, name, confined string) {
	t.Helper()
	dir := t.TempDir()
	p := place{file: filepath.Join(dir, "file"), socket: filepath.Join(dir, "socket")}
	if err := os.WriteFile(p.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	victim := exec.Command("/bin/sleep", "60")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = victim.Process.Kill(); _ = victim.Wait() }()
	p.victim = victim.Process.Pid
	if out, err := attempt(t, name, p, ""); err != nil || !strings.Contains(out, "worked") {
		if name == "trace a process" && strings.Contains(out, "refused") {
			t.Skip("tracing is forbidden on this machine")
		}
		t.Fatalf("the control: got %v, %q, want that it works", err, out)
	}
	_ = os.WriteFile(p.file, nil, 0o600)
	_ = os.Remove(p.file + ".new")
	out, err := attempt(t, name, p, confined)
	if err == nil || strings.Contains(out, "worked") {
		t.Errorf("confined: got %v, %q, want that it is refused", err, out)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		t.Errorf("the attempt was not made: %s", out)
	}
	if _, err := os.Stat(p.file + ".new"); err == nil {
		t.Error("confined: it made a file")
	}
}

func attempt(t *testing.T, name string, p place, confined string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{tryEnv + "=" + name, fmt.Sprintf("PLACE=%s %s %d", p.file, p.socket, p.victim)}
	if confined != "" {
		cmd.Env = append(cmd.Env, confinedEnv+"="+confined)
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() != syscall.SIGSYS {
			t.Errorf("it ended by %v, not by the filter", status.Signal())
		}
	}
	return string(out), err
}

// TestInherited: descriptors that the process was not meant to get are closed.
func TestInherited(t *testing.T) {
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{tryEnv + "=inherited"}
	for range 5 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, w)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "left 1") {
		t.Errorf("got %v, %q, want that only the socket's descriptor is left", err, out)
	}
}

// inherited closes what the process was not meant to get, and says how many of the
// five pipes it has been given are left: one has the number of the engine's socket.
func inherited() int {
	if err := closeInherited(); err != nil {
		fmt.Println(err)
		return 2
	}
	left := 0
	for fd := 3; fd < 8; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			left++
		}
	}
	fmt.Println("left", left)
	return 0
}
