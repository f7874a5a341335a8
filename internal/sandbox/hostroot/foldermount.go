//go:build linux

package hostroot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// maxChannels bounds the pipes and devices in a folder that are hidden.
const maxChannels = 64

// Channels lists the pipes and devices in the folder. Code in a sandbox on the host's
// own kernel could open one to reach a process of the host. Folders that the caller
// cannot read are left out: nor can the code.
func (f *Folder) Channels(ctx context.Context) (names []string, err error) {
	dir, err := f.Root()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	err = walk(ctx, dir, f.Name(), func(name string, d fs.DirEntry) error {
		if d.Type()&(fs.ModeNamedPipe|fs.ModeDevice) == 0 {
			return nil
		}
		if names = append(names, name); len(names) > maxChannels {
			return fmt.Errorf("%s has more than %d pipes and devices, which would all have to be hidden. Choose another folder, or mode copy", f.Name(), maxChannels)
		}
		return nil
	})
	return names, err
}

// Root opens what is in the folder.
func (f *Folder) Root() (*os.Root, error) {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("the folder %s cannot be read: %w", f.Name(), errors.Unwrap(err))
	}
	return root, nil
}

// Clone returns a mount of the folder that is at no path yet: private, without
// setuid bits, devices and programs, read-only unless mode is rw. below includes the
// mounts below it, where the kernel does not allow to leave them out. Files of the
// folder's owner appear as files of the user uid; a negative uid changes no owner.
func (f *Folder) Clone(mode sandbox.MountMode, below bool, uid, gid int) (*os.File, error) {
	recursive := uint(0)
	if below {
		recursive = unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(int(f.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|recursive)
	if err != nil {
		return nil, fmt.Errorf("mounting %s: %w", f.Name(), err)
	}
	tree := os.NewFile(uintptr(fd), f.Name())
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE}
	if mode != sandbox.ReadWrite {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|recursive, &attr); err != nil {
		tree.Close()
		return nil, fmt.Errorf("protecting the mount of %s (it takes Linux 5.12): %w", f.Name(), err)
	}
	if uid < 0 || uid == f.UID && gid == f.GID {
		return tree, nil
	}
	users, err := mapped(f.UID, uid, f.GID, gid)
	if err == nil {
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|recursive, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())})
		users.Close()
	}
	if err != nil {
		tree.Close()
		return nil, fmt.Errorf("the file system of %s cannot show a folder of user %d to another user (%w). Use a folder on a local disk, mode copy, or engine gvisor", f.Name(), f.UID, err)
	}
	return tree, nil
}

// mapped returns a user namespace in which one user and one group have others'
// numbers.
func mapped(fromUID, toUID, fromGID, toGID int) (*os.File, error) {
	runtime.LockOSThread() // the thread that traces
	defer runtime.UnlockOSThread()
	// A process that stops before its first instruction holds the namespace until it
	// is open.
	p, err := os.StartProcess("/proc/self/exe", []string{"sallyport-users"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: fromUID, HostID: toUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: fromGID, HostID: toGID, Size: 1}},
		Ptrace:      true, Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return nil, err
	}
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	_ = p.Kill()
	_, _ = p.Wait()
	return users, err
}

// Attach puts a mount of [Folder.Clone] at a path.
func Attach(tree *os.File, at string) error {
	if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("showing %s as %s: %w", tree.Name(), at, err)
	}
	return nil
}

// CoverBelow hides the mounts below the one at a path: a folder does not lead to
// other file systems.
func CoverBelow(at string) error {
	mounts, err := MountsBelow(at)
	if err != nil {
		return err
	}
	for _, m := range mounts { // the upper ones first
		if m == filepath.Clean(at) {
			continue
		}
		if err := unix.Mount("sallyport", m, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4096,mode=0555"); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("hiding another file system in a folder: %w", err)
		}
	}
	return nil
}
