//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// plainDevices are what every program may use.
var plainDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// masked are files of /proc that reveal or change the kernel's state; closed are
// its directories that become read-only.
var (
	masked = []string{"/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/sysrq-trigger", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/latency_stats", "/proc/kallsyms", "/proc/kpagecount", "/proc/kpageflags",
		"/proc/kpagecgroup", "/proc/config.gz", "/proc/swaps"}
	closed = []string{"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/asound", "/proc/acpi", "/proc/scsi",
		"/proc/pressure", "/proc/driver", "/proc/tty", "/proc/sysvipc"}
)

// device is a device that was opened before a mount covered it.
type device struct {
	path string
	file *os.File
}

// buildRoot assembles the root in the supervisor's own mount namespace and changes
// to it. Nothing of it is visible outside that namespace.
func buildRoot(cfg *supervisorConfig) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	sources, err := hostroot.Open(&cfg.Rootfs)
	if err != nil {
		return err
	}
	defer sources.Close()
	if len(cfg.Mounts) > 0 && !cfg.UserNamespace {
		// Of this process namespace: mapping users takes processes.
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mounting /proc for folders: %w", err)
		}
	}
	folders, err := hostroot.OpenFolders(cfg.Mounts)
	if err != nil {
		return err
	}
	defer hostroot.CloseFolders(folders)
	devices, err := openDevices(append(plainDevices, cfg.Devices...))
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range devices {
			d.file.Close()
		}
	}()
	var sys *os.File
	if cfg.Sys {
		fd, err := unix.Open("/sys", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		sys = os.NewFile(uintptr(fd), "/sys")
		defer sys.Close()
	}
	root := cfg.Mountpoint
	if err := unix.Mount("sallyport", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=32m"); err != nil {
		return fmt.Errorf("mounting a tmpfs on %s: %w", root, err)
	}
	for _, dir := range []string{"/proc", "/dev", "/sys", "/tmp", "/workspace", sandbox.PackagesDir} {
		if err := os.Mkdir(root+dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc (a container that masks parts of /proc forbids it): %w", err)
	}
	if err := sources.Assemble(root); err != nil {
		return err
	}
	if err := buildDev(root, devices, cfg); err != nil {
		return err
	}
	for i, m := range cfg.Mounts {
		if err := showFolder(root, folders[i], m, cfg); err != nil {
			return err
		}
	}
	for path, size := range map[string]int64{"/workspace": cfg.WorkspaceBytes, "/tmp": cfg.TmpBytes} {
		if err := mountMemory(root+path, size, unix.MS_NOEXEC, cfg); err != nil {
			return err
		}
	}
	if err := mountMemory(root+sandbox.PackagesDir, cfg.PackagesBytes, 0, cfg); err != nil {
		return err
	}
	if err := closeProc(root); err != nil {
		return err
	}
	if sys != nil {
		// A GPU's driver looks for it there.
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", sys.Fd()), root+"/sys", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("showing /sys: %w", err)
		}
		if err := hostroot.ReadOnly(root + "/sys"); err != nil {
			return err
		}
	}
	if err := hostroot.ReadOnlyAlone(root); err != nil {
		return err
	}
	return changeRoot(root)
}

// hideChannels covers the pipes and devices in a folder by which code could reach a
// process.
func hideChannels(root string, f *hostroot.Folder, target string) error {
	names, err := f.Channels(context.Background())
	if err != nil || len(names) == 0 {
		return err
	}
	empty := root + "/tmp/empty" // which the run's /tmp will cover
	if err := os.WriteFile(empty, nil, 0); err != nil {
		return err
	}
	for _, name := range names {
		at := filepath.Join(target, name)
		if err := unix.Mount(empty, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hiding %s in a folder: %w", name, err)
		}
		if err := hostroot.ReadOnlyAlone(at); err != nil {
			return err
		}
	}
	return nil
}

// showFolder mounts a folder of the host at its place, as files of the run's user.
// A copy is the folder below a layer in memory, which is as large as the workspace.
func showFolder(root string, f *hostroot.Folder, m sandbox.Mount, cfg *supervisorConfig) error {
	uid, gid := cfg.Init.UID, cfg.Init.GID
	if cfg.UserNamespace {
		uid, gid = -1, -1 // the namespace has no user but the owner's
	}
	tree, err := f.Clone(m.Mode, cfg.UserNamespace, uid, gid)
	if err != nil {
		return err
	}
	defer tree.Close()
	target := root + m.Target
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := hostroot.Attach(tree, target); err != nil {
		return err
	}
	if err := hostroot.CoverBelow(target); err != nil {
		return err
	}
	if m.Mode != sandbox.Copy { // pipes in an overlay are its own
		return hideChannels(root, f, target)
	}
	layer := root + "/tmp/layer" // which the run's /tmp would cover
	if err := os.MkdirAll(layer, 0o700); err != nil {
		return err
	}
	if err := mountMemory(layer, cfg.WorkspaceBytes, unix.MS_NOEXEC, cfg); err != nil {
		return err
	}
	upper, work := layer+"/upper", layer+"/work"
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	if uid >= 0 {
		if err := os.Chown(upper, uid, gid); err != nil {
			return err
		}
	}
	if err := os.Chmod(upper, f.Mode); err != nil {
		return err
	}
	options := "lowerdir=/proc/self/fd/" + strconv.Itoa(int(tree.Fd())) + ",upperdir=" + upper + ",workdir=" + work
	if cfg.UserNamespace {
		options += ",userxattr"
	}
	if err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("a copy of %s: its file system cannot be the lower part of an overlay (%w): use mode ro", m.Source, err)
	}
	// The overlay keeps its layers.
	return errors.Join(unix.Unmount(layer, unix.MNT_DETACH), os.Remove(layer))
}

// changeRoot makes root the root and unmounts the old one.
func changeRoot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root: %w", err)
	}
	return os.Chdir("/")
}

func openDevices(paths []string) ([]device, error) {
	var out []device
	for _, path := range paths {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return out, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, device{path, os.NewFile(uintptr(fd), path)})
	}
	return out, nil
}

func buildDev(root string, devices []device, cfg *supervisorConfig) error {
	dev := root + "/dev"
	for _, d := range devices {
		target := root + d.path
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, nil, 0o600); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", d.file.Fd()), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("showing %s: %w", d.path, err)
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, dev+"/"+name); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dev+"/shm", 0o755); err != nil {
		return err
	}
	return mountMemory(dev+"/shm", cfg.TmpBytes, unix.MS_NOEXEC, cfg)
}

// mountMemory mounts a tmpfs that the run's user owns, with an inode for every
// kilobyte of it.
func mountMemory(path string, size int64, flags uintptr, cfg *supervisorConfig) error {
	options := fmt.Sprintf("mode=0755,size=%d,nr_inodes=%d", size, max(size>>10, 1024))
	uid, gid := cfg.Init.UID, cfg.Init.GID
	if cfg.UserNamespace {
		uid, gid = 0, 0 // the one user that the namespace has
	}
	options += fmt.Sprintf(",uid=%d,gid=%d", uid, gid)
	if err := unix.Mount("tmpfs", path, "tmpfs", flags|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting %s: %w", strings.TrimPrefix(path, cfg.Mountpoint), err)
	}
	return nil
}

// closeProc hides the kernel's files in the new /proc, or makes them read-only.
func closeProc(root string) error {
	// An empty file, not a device: devices can be written to even on a read-only
	// mount.
	empty := root + "/dev/.empty"
	if err := os.WriteFile(empty, nil, 0); err != nil {
		return err
	}
	for _, path := range masked {
		if _, err := os.Lstat(root + path); err != nil {
			continue
		}
		if err := unix.Mount(empty, root+path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("masking %s: %w", path, err)
		}
		if err := hostroot.ReadOnlyAlone(root + path); err != nil {
			return err
		}
	}
	for _, path := range closed {
		if _, err := os.Lstat(root + path); err != nil {
			continue
		}
		if err := unix.Mount(root+path, root+path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("closing %s: %w", path, err)
		}
		if err := hostroot.ReadOnly(root + path); err != nil {
			return err
		}
	}
	return nil
}

// raiseLoopback brings up localhost in a network namespace, as programs expect. A
// failure does no other harm.
func raiseLoopback() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return
	}
	req.SetUint16(unix.IFF_UP)
	_ = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
