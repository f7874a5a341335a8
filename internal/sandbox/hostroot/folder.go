//go:build linux

package hostroot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenFolder opens a folder of the host that a user has given to a sandbox. The path
// has no symbolic link; one that it has now was put there after it was checked.
func OpenFolder(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch err {
	case nil:
		return os.NewFile(uintptr(fd), path), nil
	case unix.ENOSYS:
		return nil, fmt.Errorf("the folder %s: Linux 5.6 or newer is needed to mount folders safely", path)
	case unix.ENOENT:
		return nil, fmt.Errorf("the folder %s is gone: put it back, or leave out its mount", path)
	case unix.ENOTDIR:
		return nil, fmt.Errorf("%s is not a folder", path)
	case unix.ELOOP:
		return nil, fmt.Errorf("the folder %s: a part of the path is a symbolic link: give the path that it leads to", path)
	}
	return nil, fmt.Errorf("the folder %s: %w", path, err)
}

// BindFolder mounts an open folder on target, without what is mounted below it. In
// a user namespace that cannot be left out; what serves the folder must not enter it.
func BindFolder(folder *os.File, target string, writable bool) error {
	from := fmt.Sprintf("/proc/self/fd/%d", folder.Fd())
	err := unix.Mount(from, target, "", unix.MS_BIND, "")
	if err == unix.EINVAL {
		err = unix.Mount(from, target, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return err
	}
	if !writable {
		return ReadOnly(target)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(-1, target, unix.AT_RECURSIVE, &attr); err != unix.ENOSYS {
		return err
	}
	return nil // an older kernel; the file server opens no devices
}
