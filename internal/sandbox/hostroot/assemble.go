//go:build linux

package hostroot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Sources are the open sources of a root's binds: what is mounted over them
// afterwards does not matter any more.
type Sources struct {
	root  *Rootfs
	files []*os.File
}

// Open opens what the root shows of the host.
func Open(root *Rootfs) (*Sources, error) {
	s := &Sources{root: root}
	for _, b := range root.Binds {
		fd, err := unix.Open(b.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("%s: %w", b.Source, err)
		}
		s.files = append(s.files, os.NewFile(uintptr(fd), b.Source))
	}
	return s, nil
}

// Close closes the sources.
func (s *Sources) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Assemble puts the root together in dir, which lies on a tmpfs of the
// caller's own mount namespace. The caller makes what it mounted read-only.
func (s *Sources) Assemble(dir string) error {
	for _, sub := range s.root.Dirs {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	for i, b := range s.root.Binds {
		if err := bind(s.files[i], filepath.Join(dir, b.Target)); err != nil {
			return fmt.Errorf("showing %s as %s: %w", b.Source, b.Target, err)
		}
	}
	for path, file := range s.root.Files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(file.Mode) & os.ModePerm
		if err := os.WriteFile(path, file.Data, mode); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			return err
		}
	}
	for path, target := range s.root.Links {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts what source refers to on target, with everything mounted below
// it (in a user namespace a part of a locked mount tree is not available alone),
// and makes all of it read-only.
func bind(source *os.File, target string) error {
	fi, err := source.Stat()
	if err != nil {
		return err
	}
	if fi.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return err
	}
	from := fmt.Sprintf("/proc/self/fd/%d", source.Fd())
	if err := unix.Mount(from, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return ReadOnly(target)
}

// ReadOnly makes the mount at target, and every one below it, read-only.
func ReadOnly(target string) error { return readOnly(target, unix.AT_RECURSIVE) }

// ReadOnlyAlone makes the mount at target read-only, and none below it.
func ReadOnlyAlone(target string) error { return readOnly(target, 0) }

func readOnly(target string, flags uint) error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	err := unix.MountSetattr(-1, target, flags, &attr)
	if err == unix.ENOSYS {
		err = remountReadOnly(target, flags == unix.AT_RECURSIVE)
	}
	return err
}

// remountReadOnly is for kernels before 5.12. Flags that the source's mount
// has are kept: a user namespace may not clear them.
func remountReadOnly(target string, below bool) error {
	mounts := []string{target}
	if below {
		var err error
		if mounts, err = MountsBelow(target); err != nil {
			return err
		}
	}
	for _, m := range mounts {
		var st unix.Statfs_t
		if err := unix.Statfs(m, &st); err != nil {
			return err
		}
		flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
		for st_, ms := range map[int64]uintptr{
			unix.ST_NOEXEC:     unix.MS_NOEXEC,
			unix.ST_NOATIME:    unix.MS_NOATIME,
			unix.ST_NODIRATIME: unix.MS_NODIRATIME,
			unix.ST_RELATIME:   unix.MS_RELATIME,
		} {
			if int64(st.Flags)&st_ != 0 {
				flags |= ms
			}
		}
		if err := unix.Mount("", m, "", flags, ""); err != nil {
			return fmt.Errorf("making %s read-only: %w", m, err)
		}
	}
	return nil
}
