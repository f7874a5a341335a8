//go:build linux && (amd64 || arm64)

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main runs the part of the engine that argv[0] names, and reports whether it
// names one. It does not return while that part runs.
func Main(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch filepath.Base(args[0]) {
	case SupervisorName:
		return runSupervisor(), true
	case InitName:
		// The supervisor reads the reason, or nothing if the guest runs.
		report := os.NewFile(reportFD, "report")
		unix.CloseOnExec(reportFD)
		fmt.Fprint(report, enter())
		return initFailed, true
	}
	return 0, false
}

// initFailed is the exit status of a child init that did not become the guest.
const initFailed = 125

// enter confines this process and becomes the guest. Most of what it gives up
// belongs to a thread, and the kernel keeps the one that calls execve.
func enter() error {
	runtime.LockOSThread()
	in := os.NewFile(initFD, "configuration")
	var cfg initConfig
	err := json.NewDecoder(in).Decode(&cfg)
	in.Close()
	if err != nil {
		return fmt.Errorf("no configuration: %w", err)
	}
	if len(cfg.Args) == 0 {
		return errors.New("no program")
	}
	if err := os.Chdir(cfg.Dir); err != nil {
		return err
	}
	if err := becomeUser(cfg.UID, cfg.GID); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if cfg.Umask != 0 {
		unix.Umask(cfg.Umask)
	}
	if cfg.Paths != nil {
		if err := landlock(cfg.Paths); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		resource int
		value    int64
	}{
		{unix.RLIMIT_CORE, -1},
		{unix.RLIMIT_FSIZE, cfg.FileBytes},
		{unix.RLIMIT_AS, cfg.AddressSpace},
		{unix.RLIMIT_MEMLOCK, cfg.MemoryLocked},
		{unix.RLIMIT_NPROC, int64(cfg.Processes)},
		{unix.RLIMIT_NOFILE, int64(cfg.OpenFiles)},
	} {
		if l.value == 0 {
			continue
		}
		if err := limit(l.resource, uint64(max(l.value, 0))); err != nil {
			return fmt.Errorf("rlimit %d: %w", l.resource, err)
		}
	}
	if err := install(filter(cfg.Sockets, cfg.SharedUser, cfg.Folders)); err != nil {
		return fmt.Errorf("the filter of system calls: %w", err)
	}
	return fmt.Errorf("%s: %w", cfg.Args[0], syscall.Exec(cfg.Args[0], cfg.Args, cfg.Env))
}

// limit sets both limits; it never raises the hard one.
func limit(resource int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(0, resource, nil, &now); err != nil {
		return err
	}
	value = min(value, now.Max)
	return unix.Prlimit(0, resource, &unix.Rlimit{Cur: value, Max: value}, nil)
}

// becomeUser changes the user of the calling thread only, which is the one that
// stays.
func becomeUser(uid, gid int) error {
	// Before the user, because it requires a privilege.
	for c := 0; c <= lastCapability(); c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil && err != unix.EPERM {
			return fmt.Errorf("dropping capability %d: %w", c, err)
		}
	}
	if uid < 0 {
		return nil
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return fmt.Errorf("setresgid %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return fmt.Errorf("setresuid %d: %w", uid, errno)
	}
	return nil
}

func lastCapability() int {
	last := unix.CAP_LAST_CAP
	for c := last + 1; c < 64; c++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err != nil {
			break
		}
		last = c
	}
	return last
}

func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&hdr, &none[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}
