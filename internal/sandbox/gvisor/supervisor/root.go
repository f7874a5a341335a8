//go:build linux && (amd64 || arm64)

package supervisor

import (
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// rootDirs are the directories in the supervisor's own tmpfs.
type rootDirs struct {
	base, root, state, bundle, image string

	folders []specs.Mount // of the host, as the sandbox mounts them
}

// buildRoot makes the mounts private, mounts a tmpfs and the process namespace's
// own /proc, and assembles the sandbox's root in the tmpfs.
func buildRoot(cfg *gvisor.SupervisorConfig) (rootDirs, error) {
	var d rootDirs
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return d, fmt.Errorf("making mounts private: %w", err)
	}
	// Before the tmpfs covers anything.
	sources, err := hostroot.Open(&cfg.Rootfs)
	if err != nil {
		return d, err
	}
	defer sources.Close()
	folders, err := hostroot.OpenFolders(cfg.Mounts)
	if err != nil {
		return d, err
	}
	defer hostroot.CloseFolders(folders)
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
		image:  filepath.Join(cfg.Mountpoint, "image"),
	}
	for _, dir := range []string{d.root, d.state, d.bundle, d.image} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return d, err
		}
	}
	for _, dir := range []string{"/proc", "/dev", "/sys", "/tmp", "/workspace", sandbox.PackagesDir} {
		if err := os.MkdirAll(filepath.Join(d.root, dir), 0o755); err != nil {
			return d, err
		}
	}
	if err := sources.Assemble(d.root); err != nil {
		return d, err
	}
	return d, mountFolders(&d, cfg.Mounts, folders)
}

// ociSpec returns the OCI specification of the sandbox. It grants no capability
// and no network; the root is read-only, and only five tmpfs mounts and folders that
// the user has given are writable. Code can be executed from one of them, which is for
// packages.
func ociSpec(cfg *gvisor.SupervisorConfig, dirs *rootDirs) *specs.Spec {
	rlimit := func(typ string, n uint64) specs.POSIXRlimit {
		return specs.POSIXRlimit{Type: typ, Hard: n, Soft: n}
	}
	tmpfs := func(path string, size int64, options ...string) specs.Mount {
		return specs.Mount{
			Destination: path,
			Type:        "tmpfs",
			Source:      "tmpfs",
			Options:     append([]string{"nosuid", "nodev", fmt.Sprintf("size=%d", size)}, options...),
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
				// Only a backstop: engines for JavaScript and OpenBLAS reserve
				// far more than they use (vl-convert 64 GB).
				rlimit("RLIMIT_AS", uint64(max(128<<30, 8*cfg.MemoryBytes))),
			},
		},
		Root:     &specs.Root{Path: dirs.root, Readonly: true},
		Hostname: "sandbox",
		Mounts: append([]specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=65536"}},
			tmpfs("/dev/shm", cfg.TmpBytes, "noexec", "mode=1777"),
			tmpfs("/tmp", cfg.TmpBytes, "noexec", "mode=1777"),
			tmpfs("/workspace", cfg.WorkspaceBytes, "noexec", "mode=0755", "uid=65534", "gid=65534"),
			tmpfs(sandbox.PackagesDir, cfg.PackagesBytes, "mode=0755", "uid=65534", "gid=65534"),
		}, dirs.folders...),
		Annotations: annotations(cfg),
		Linux: &specs.Linux{
			Resources: resources(cfg),
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

// resources returns the limits that the sandbox's kernel shows. The engine enforces
// them.
func resources(cfg *gvisor.SupervisorConfig) *specs.LinuxResources {
	r := &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &cfg.MemoryBytes}}
	if cfg.CPUs > 0 {
		period := uint64(100_000)
		quota := int64(cfg.CPUs * float64(period))
		r.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	return r
}
