//go:build linux && (amd64 || arm64)

package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// Bounds of the process. A file that it writes is an image or compiled code.
const (
	maxDescriptors = 16384
	maxFileBytes   = 1 << 30
)

// settle makes the process one that nothing of its parent's reaches, before it does
// anything else.
func settle() error {
	var errs []error
	call := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	// The parent's end of the socket tells the same, but a process that does not read
	// it any more must not live on.
	call("PR_SET_PDEATHSIG", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
	call("RLIMIT_CORE", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}))
	call("RLIMIT_FSIZE", lower(unix.RLIMIT_FSIZE, maxFileBytes))
	call("RLIMIT_NOFILE", lower(unix.RLIMIT_NOFILE, maxDescriptors))
	call("descriptors", closeInherited())
	// Where memory runs out, the kernel ends this process before any other of the user.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	return errors.Join(errs...)
}

// lower sets a limit, or leaves one that is lower already.
func lower(resource int, limit uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	limit = min(limit, now.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit})
}

// closeInherited closes every descriptor that this process was not meant to get. What
// the runtime has opened itself is of kinds that lead nowhere.
func closeInherited() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= control.FD || fd == int(dir.Fd()) {
			continue
		}
		what, err := os.Readlink("/proc/self/fd/" + name)
		if err == nil && !strings.HasPrefix(what, "anon_inode:[event") {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// Confine takes from all threads of the process everything but the use of what it has
// open, and returns what walls there are now. There is no way back.
func Confine() ([]string, error) {
	// Not before: it also hides the process's own descriptors and pages from itself.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("PR_SET_DUMPABLE: %w", err)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return nil, fmt.Errorf("no_new_privs: %w", errno)
	}
	if err := dropCapabilities(); err != nil {
		return nil, err
	}
	walls := []string{"seccomp"}
	version, err := landlock()
	if err != nil {
		return nil, err
	}
	if version > 0 {
		walls = append(walls, fmt.Sprintf("landlock %d", version))
	}
	if err := install(filter(os.Getpid())); err != nil {
		return nil, err
	}
	return walls, nil
}

// dropCapabilities takes all capabilities from all threads.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return fmt.Errorf("capset: %w", errno)
	}
	return nil
}

// Access rights of Landlock (linux/landlock.h), and the versions that added them.
const (
	firstRights    = 1<<13 - 1 // of version 1
	accessIoctlDev = 1 << 15
	scopeAbstract  = 1 << 0
	scopeSignals   = 1 << 1
)

// landlockVersion returns the kernel's version of Landlock, 0 if it has none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// landlock takes every right that Landlock knows from all threads, and returns its
// version: 0 if the kernel has none.
func landlock() (version int, err error) {
	if version = landlockVersion(); version == 0 {
		return 0, nil
	}
	attr := unix.LandlockRulesetAttr{Access_fs: firstRights}
	size := uintptr(8)
	if version >= 2 {
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		attr.Access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		size = 16
		attr.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 5 {
		attr.Access_fs |= accessIoctlDev
	}
	if version >= 6 {
		size = 24
		attr.Scoped = scopeAbstract | scopeSignals
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return 0, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return 0, fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return version, nil
}
