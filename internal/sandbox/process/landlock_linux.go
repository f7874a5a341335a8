//go:build linux && (amd64 || arm64)

package process

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Access rights of Landlock (linux/landlock.h), and the versions that added them.
const (
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | accessIoctlDev
	readRights  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	runRights   = readRights | unix.LANDLOCK_ACCESS_FS_EXECUTE
	firstRights = 1<<13 - 1 // of version 1
	// Not made: device nodes.
	writeRights = (firstRights | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE) &^
		(unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)
	deviceRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | accessIoctlDev

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

// landlock restricts the calling thread, and what it executes, to the paths.
// no_new_privs must be set.
func landlock(p *paths) error {
	version := landlockVersion()
	if version == 0 {
		return errors.New("this kernel has no Landlock")
	}
	handled := uint64(firstRights)
	if version >= 2 {
		handled |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		handled |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 5 {
		handled |= accessIoctlDev
	}
	attr := unix.LandlockRulesetAttr{Access_fs: handled}
	size := uintptr(8)
	if version >= 4 {
		size = 16
		if !p.Connect {
			attr.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if version >= 6 {
		size = 24
		attr.Scoped = scopeAbstract | scopeSignals
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, group := range []struct {
		paths  []string
		rights uint64
	}{{p.Run, runRights}, {p.Read, readRights}, {p.Write, writeRights | readRights}, {p.Devices, deviceRights}} {
		for _, path := range group.paths {
			if err := allow(int(fd), path, group.rights&handled); err != nil {
				return fmt.Errorf("landlock: %s: %w", path, err)
			}
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return nil
}

// allow grants rights beneath path. It ignores a path that does not exist.
func allow(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
