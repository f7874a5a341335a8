//go:build linux && (amd64 || arm64)

package supervisor

import (
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/fsutil"
	"gvisor.dev/gvisor/pkg/lisafs"
)

// What changes a folder. The kernel of a read-only one cannot call these methods, and
// its mount is read-only, too.

// permissions are the mode bits that code can give.
const permissions = 0o777

// SetStat implements lisafs.ControlFDImpl. The sandbox's kernel drops the error where
// others can change the files, too: code sees success, and the file as it is.
func (e *entry) SetStat(r lisafs.SetStatReq) (failed uint32, failure error) {
	if e.fd < 0 {
		return r.Mask, unix.ENOENT
	}
	fail := func(mask uint32, err error) {
		if err != nil {
			failed, failure = failed|mask, err
		}
	}
	if r.Mask&unix.STATX_MODE != 0 {
		fail(unix.STATX_MODE, e.chmod(r.Mode&permissions))
	}
	if r.Mask&unix.STATX_SIZE != 0 {
		fail(unix.STATX_SIZE, e.truncate(r.Size))
	}
	if mask := r.Mask & (unix.STATX_ATIME | unix.STATX_MTIME); mask != 0 {
		fail(mask, e.utimes(&r))
	}
	// Everything is the code's already. What it gives to itself is no change.
	if r.Mask&unix.STATX_UID != 0 && r.UID != guestID || r.Mask&unix.STATX_GID != 0 && r.GID != guestID {
		fail(r.Mask&(unix.STATX_UID|unix.STATX_GID), unix.EPERM)
	}
	return failed, failure
}

func (e *entry) chmod(mode uint32) error {
	if e.IsSymlink() {
		return unix.EOPNOTSUPP
	}
	return unix.Fchmodat(e.server.descriptors, strconv.Itoa(e.fd), mode, 0)
}

func (e *entry) truncate(size uint64) error {
	fd, err := e.open(unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Ftruncate(fd, int64(size))
}

func (e *entry) utimes(r *lisafs.SetStatReq) error {
	if e.IsSymlink() {
		return unix.EOPNOTSUPP
	}
	times := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
	if r.Mask&unix.STATX_ATIME != 0 {
		times[0] = unix.Timespec{Sec: r.Atime.Sec, Nsec: r.Atime.Nsec}
	}
	if r.Mask&unix.STATX_MTIME != 0 {
		times[1] = unix.Timespec{Sec: r.Mtime.Sec, Nsec: r.Mtime.Nsec}
	}
	return fsutil.Utimensat(e.server.descriptors, strconv.Itoa(e.fd), times, 0)
}

// own gives a new file, open at fd, to the owner of the directory. That changes
// nothing for an ordinary user, who can give nothing away.
func (e *entry) own(fd int) {
	dir, err := stat(e.fd)
	if err != nil {
		return
	}
	if st, err := stat(fd); err == nil && (st.Uid != dir.Uid || st.Gid != dir.Gid) {
		_ = unix.Fchownat(fd, "", int(dir.Uid), int(dir.Gid), unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	}
}

// made makes the entry of a directory or link that was just made. Its name may have
// been given to another file of the host meanwhile: a file's owner must not change.
func (e *entry) made(name string, kind uint16) (*lisafs.ControlFD, lisafs.Statx, error) {
	fd, err := lookup(e.fd, name)
	if err != nil {
		return nil, lisafs.Statx{}, err
	}
	if st, err := stat(fd); err == nil && st.Mode&unix.S_IFMT == kind {
		e.own(fd)
	}
	c, st, err := e.found(name, fd)
	return c.FD(), st, err
}

// OpenCreate implements lisafs.ControlFDImpl.
func (e *entry) OpenCreate(mode linux.FileMode, _ lisafs.UID, _ lisafs.GID, name string, flags uint32) (*lisafs.ControlFD, lisafs.Statx, *lisafs.OpenFD, int, error) {
	c, st, err := e.create(name, mode)
	if err != nil {
		return nil, lisafs.Statx{}, nil, -1, err
	}
	// By the rights of the new file's owner, whatever mode it has.
	fd, err := e.server.reopen(c.fd, int(flags)&(unix.O_ACCMODE|unix.O_APPEND)|unix.O_NONBLOCK)
	if err != nil {
		_ = unix.Unlinkat(e.fd, name, 0)
		c.RemoveFromConn()
		return nil, lisafs.Statx{}, nil, -1, err
	}
	o := &openEntry{entry: c, fd: fd}
	o.OpenFD.Init(c.FD(), flags, o)
	donated, err := unix.Dup(fd)
	if err != nil {
		donated = -1
	}
	return c.FD(), st, o.FD(), donated, nil
}

func (e *entry) create(name string, mode linux.FileMode) (*entry, lisafs.Statx, error) {
	if e.fd < 0 {
		return nil, lisafs.Statx{}, unix.ENOENT
	}
	fd, err := unix.Openat(e.fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode)&permissions)
	if err != nil {
		return nil, lisafs.Statx{}, err
	}
	defer unix.Close(fd)
	e.own(fd)
	named, err := e.server.reopen(fd, unix.O_PATH)
	if err != nil {
		return nil, lisafs.Statx{}, err
	}
	return e.found(name, named)
}

// Mkdir implements lisafs.ControlFDImpl.
func (e *entry) Mkdir(mode linux.FileMode, _ lisafs.UID, _ lisafs.GID, name string) (*lisafs.ControlFD, lisafs.Statx, error) {
	if e.fd < 0 {
		return nil, lisafs.Statx{}, unix.ENOENT
	}
	if err := unix.Mkdirat(e.fd, name, uint32(mode)&permissions); err != nil {
		return nil, lisafs.Statx{}, err
	}
	return e.made(name, unix.S_IFDIR)
}

// Mknod implements lisafs.ControlFDImpl. It makes regular files alone.
func (e *entry) Mknod(mode linux.FileMode, _ lisafs.UID, _ lisafs.GID, name string, _, _ uint32) (*lisafs.ControlFD, lisafs.Statx, error) {
	if mode.FileType() != linux.S_IFREG {
		return nil, lisafs.Statx{}, unix.EPERM
	}
	c, st, err := e.create(name, mode)
	return c.FD(), st, err
}

// Symlink implements lisafs.ControlFDImpl.
func (e *entry) Symlink(name, target string, _ lisafs.UID, _ lisafs.GID) (*lisafs.ControlFD, lisafs.Statx, error) {
	if e.fd < 0 {
		return nil, lisafs.Statx{}, unix.ENOENT
	}
	if err := unix.Symlinkat(target, e.fd, name); err != nil {
		return nil, lisafs.Statx{}, err
	}
	return e.made(name, unix.S_IFLNK)
}

// Link implements lisafs.ControlFDImpl. A descriptor alone cannot be linked without
// a capability on the host, so it goes by the file's name in its directory.
func (e *entry) Link(dir lisafs.ControlFDImpl, name string) (*lisafs.ControlFD, lisafs.Statx, error) {
	d, ok := dir.(*entry)
	if !ok || d.fd < 0 || e.fd < 0 {
		return nil, lisafs.Statx{}, unix.ENOENT
	}
	root := e.server.root
	at, err := filepath.Rel(root.Node().FilePath(), e.Node().FilePath())
	if err != nil {
		return nil, lisafs.Statx{}, err
	}
	parent, err := lookup(root.fd, filepath.Dir(at))
	if err != nil {
		return nil, lisafs.Statx{}, err
	}
	defer unix.Close(parent)
	if err := unix.Linkat(parent, filepath.Base(at), d.fd, name, 0); err != nil {
		return nil, lisafs.Statx{}, err
	}
	fd, err := lookup(d.fd, name)
	if err != nil {
		return nil, lisafs.Statx{}, err
	}
	c, st, err := d.found(name, fd)
	return c.FD(), st, err
}

// Unlink implements lisafs.ControlFDImpl.
func (e *entry) Unlink(name string, flags uint32) error {
	if e.fd < 0 {
		return unix.ENOENT
	}
	return unix.Unlinkat(e.fd, name, int(flags))
}

// RenameAt implements lisafs.ControlFDImpl.
func (e *entry) RenameAt(name string, dir lisafs.ControlFDImpl, newName string) error {
	return e.RenameAt2(name, dir, newName, 0)
}

// RenameAt2 implements lisafs.ControlFDImpl.
func (e *entry) RenameAt2(name string, dir lisafs.ControlFDImpl, newName string, flags uint32) error {
	d, ok := dir.(*entry)
	if !ok || d.fd < 0 || e.fd < 0 {
		return unix.ENOENT
	}
	if flags&unix.RENAME_WHITEOUT != 0 {
		return unix.EINVAL // makes a device
	}
	return fsutil.RenameAt2(e.fd, name, d.fd, newName, flags)
}
