//go:build linux

package hostroot

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Folder is an open folder of the host: what is at its path afterwards does not
// matter any more.
type Folder struct {
	*os.File
	UID, GID int         // its owner
	Mode     os.FileMode // its permission bits
	Dev, Ino uint64      // which it is
}

// OpenFolders opens the folders of the host that a sandbox is to see: all, or none.
func OpenFolders(mounts []sandbox.Mount) (folders []*Folder, err error) {
	for _, m := range mounts {
		f, err := OpenFolder(m.Source)
		if err != nil {
			CloseFolders(folders)
			return nil, err
		}
		folders = append(folders, f)
	}
	return folders, nil
}

// CloseFolders closes folders. What is mounted stays.
func CloseFolders(folders []*Folder) {
	for _, f := range folders {
		_ = f.Close()
	}
}

// OpenFolder opens a folder of the host that a user has given to a sandbox. The path
// has no symbolic link; one that it has now was put there after it was checked.
func OpenFolder(path string) (*Folder, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch err {
	case nil:
		file := os.NewFile(uintptr(fd), path)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			_ = file.Close()
			return nil, fmt.Errorf("the folder %s: %w", path, err)
		}
		return &Folder{File: file, UID: int(st.Uid), GID: int(st.Gid), Mode: os.FileMode(st.Mode) & os.ModePerm, Dev: st.Dev, Ino: st.Ino}, nil
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
func BindFolder(folder *Folder, target string, writable bool) error {
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
