//go:build linux && (amd64 || arm64)

package cell

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"sallyport/internal/sandbox/gvisor"
)

// rootDirs are the places in the cell's own tmpfs.
type rootDirs struct {
	base, root, state, bundle string
}

// buildRoot makes the cell's mounts private, mounts a tmpfs and the process
// namespace's own /proc, and assembles the sandbox's root in the tmpfs.
func buildRoot(cfg *gvisor.CellConfig) (rootDirs, error) {
	var d rootDirs
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return d, fmt.Errorf("making mounts private: %w", err)
	}
	// Bind sources are opened before the tmpfs covers anything.
	sources := make([]*os.File, len(cfg.Rootfs.Binds))
	for i, b := range cfg.Rootfs.Binds {
		fd, err := unix.Open(b.Source, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return d, fmt.Errorf("%s: %w", b.Source, err)
		}
		sources[i] = os.NewFile(uintptr(fd), b.Source)
		defer sources[i].Close()
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return d, fmt.Errorf("mounting /proc (a container that masks parts of /proc forbids it): %w", err)
	}
	if err := unix.Mount("sallyport", cfg.Mountpoint, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=32m"); err != nil {
		return d, fmt.Errorf("mounting a tmpfs on %s: %w", cfg.Mountpoint, err)
	}
	d = rootDirs{
		base:   cfg.Mountpoint,
		root:   filepath.Join(cfg.Mountpoint, "root"),
		state:  filepath.Join(cfg.Mountpoint, "state"),
		bundle: filepath.Join(cfg.Mountpoint, "bundle"),
	}
	for _, dir := range []string{d.root, d.state, d.bundle} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return d, err
		}
	}
	for _, dir := range append([]string{"/proc", "/dev", "/sys", "/tmp", "/workspace"}, cfg.Rootfs.Dirs...) {
		if err := os.MkdirAll(filepath.Join(d.root, dir), 0o755); err != nil {
			return d, err
		}
	}
	for i, b := range cfg.Rootfs.Binds {
		if err := bind(sources[i], filepath.Join(d.root, b.Target)); err != nil {
			return d, fmt.Errorf("showing %s as %s: %w", b.Source, b.Target, err)
		}
	}
	for path, file := range cfg.Rootfs.Files {
		path = filepath.Join(d.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return d, err
		}
		mode := os.FileMode(file.Mode) & os.ModePerm
		if err := os.WriteFile(path, file.Data, mode); err != nil {
			return d, err
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			return d, err
		}
	}
	for path, target := range cfg.Rootfs.Links {
		path = filepath.Join(d.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return d, err
		}
		if err := os.Symlink(target, path); err != nil {
			return d, err
		}
	}
	return d, nil
}

// bind mounts what source refers to on target, with everything mounted below
// it (in a user namespace a part of a locked mount tree cannot be had alone),
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
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	err = unix.MountSetattr(-1, target, unix.AT_RECURSIVE, &attr)
	if err == unix.ENOSYS {
		err = remountReadOnly(target)
	}
	return err
}

// remountReadOnly is for kernels before 5.12. Flags that the source's mount
// has are kept: a user namespace may not clear them.
func remountReadOnly(target string) error {
	mounts, err := mountsBelow(target)
	if err != nil {
		return err
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

// mountsBelow lists the mount points at and below dir, deepest last.
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []string
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		m := unescape.Replace(f[4])
		if m == dir || strings.HasPrefix(m, dir+"/") {
			mounts = append(mounts, m)
		}
	}
	sort.Strings(mounts)
	return mounts, nil
}

// ociSpec is what the sandbox is. It grants nothing: no capability, no
// network, a read-only root, and writable memory in four places only.
func ociSpec(cfg *gvisor.CellConfig, root string) *specs.Spec {
	rlimit := func(typ string, n uint64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: typ, Hard: n, Soft: n}
	}
	tmpfs := func(path string, size int64, options ...string) specs.Mount {
		return specs.Mount{
			Destination: path,
			Type:        "tmpfs",
			Source:      "tmpfs",
			Options:     append([]string{"nosuid", "nodev", "noexec", fmt.Sprintf("size=%d", size)}, options...),
		}
	}
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			User:            specs.User{UID: 65534, GID: 65534},
			Args:            cfg.Args,
			Env:             cfg.Env,
			Cwd:             "/workspace",
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			Rlimits: []specs.POSIXRlimit{
				rlimit("RLIMIT_NPROC", uint64(cfg.Processes)),
				rlimit("RLIMIT_NOFILE", uint64(cfg.OpenFiles)),
				rlimit("RLIMIT_CORE", 0),
				rlimit("RLIMIT_MEMLOCK", 8<<20),
				// A backstop only: Node.js and OpenBLAS reserve far more
				// than they use.
				rlimit("RLIMIT_AS", uint64(max(4<<30, 8*cfg.MemoryBytes))),
			},
		},
		Root:     &specs.Root{Path: root, Readonly: true},
		Hostname: "sandbox",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=65536"}},
			tmpfs("/dev/shm", cfg.TmpBytes, "mode=1777"),
			tmpfs("/tmp", cfg.TmpBytes, "mode=1777"),
			tmpfs("/workspace", cfg.WorkspaceBytes, "mode=0755", "uid=65534", "gid=65534"),
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace},
				{Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace},
				{Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace},
			},
		},
	}
}
