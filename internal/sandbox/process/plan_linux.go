//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
	"github.com/sallyport/sallyport/internal/sandbox/programdir"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

const (
	nobody = 65534
	// firstUser is the first of the users that runs get, one each. They are above
	// the users that systems assign, and below the sign bit of 32 bits.
	firstUser = 0x70000000
	// firstKiller is the first of as many users that never have a process.
	firstKiller = 0x60000000
)

// launch is a run that is ready to be started.
type launch struct {
	cfg supervisorConfig
	// prepare is called with the supervisor's process number when it exists.
	prepare func(pid int, cfg *supervisorConfig) error
}

// base returns what the configurations of both plans have in common.
func (b *Engine) base(spec *sandbox.Spec) supervisorConfig {
	l := spec.Limits.WithDefaults()
	cfg := supervisorConfig{
		MemoryBytes: l.MemoryBytes, WorkspaceBytes: l.WorkspaceBytes, TmpBytes: l.TmpBytes, PackagesBytes: l.PackagesBytes,
		Init: initConfig{
			UID: -1, GID: -1,
			Processes: l.Processes, OpenFiles: l.OpenFiles,
			// Only a backstop: programs reserve far more than they use.
			AddressSpace: max(4<<30, 8*l.MemoryBytes),
			MemoryLocked: 8 << 20,
		},
	}
	if b.opts.GPU {
		cfg.Devices = gpuDevices()
	}
	if len(cfg.Devices) > 0 {
		// A GPU's driver maps all of its memory, and locks what it copies from.
		cfg.Init.AddressSpace, cfg.Init.MemoryLocked = 0, 0
		cfg.Sys = true
	}
	return cfg
}

// gpuDevices returns the devices of the place's GPUs.
func gpuDevices() []string {
	var found []string
	for _, pattern := range []string{"/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
		"/dev/nvidia-modeset", "/dev/nvidia-caps/*", "/dev/kfd", "/dev/dri/*"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			if fi, err := os.Lstat(name); err == nil && fi.Mode()&os.ModeCharDevice != 0 {
				found = append(found, name)
			}
		}
	}
	return found
}

// gpuDirs returns the directories with libraries for GPUs, besides the system's.
func gpuDirs() (dirs, libraries []string) {
	for _, pattern := range []string{"/usr/local/nvidia", "/usr/local/cuda", "/usr/local/cuda-*", "/opt/rocm*"} {
		names, _ := filepath.Glob(pattern)
		dirs = append(dirs, names...)
	}
	for _, lib := range []string{"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/cuda/lib64", "/opt/rocm/lib"} {
		if _, err := os.Stat(lib); err == nil {
			libraries = append(libraries, lib)
		}
	}
	return dirs, libraries
}

// planNamespaces plans a run in namespaces of its own, with a root of its own.
func (b *Engine) planNamespaces(ctx context.Context, spec *sandbox.Spec) (*launch, error) {
	p, err := b.host.Find(ctx, spec.Program, spec.Root.Interpreter)
	if err != nil {
		return nil, err
	}
	dir, err := programdir.Install(ctx, b.opts.CacheDir, spec.Program, p.Executable)
	if err != nil {
		return nil, err
	}
	fsys, interpreter, vars, err := hostroot.Plan(p, b.opts.Home, dir)
	if err != nil {
		return nil, err
	}
	if err := copyIn(&fsys, dir, sandbox.ProgramDir); err != nil {
		return nil, err
	}
	fsys.AddFiles(spec.Files)
	cfg := b.base(spec)
	cfg.Namespaces, cfg.UserNamespace = true, !b.root
	cfg.OwnNetwork = !spec.Network.Internet
	if len(cfg.Devices) > 0 {
		dirs, libraries := gpuDirs()
		for _, d := range dirs {
			if err := fsys.Show(d); err != nil {
				return nil, err
			}
		}
		if len(libraries) > 0 {
			vars = append(vars, "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		}
	}
	if spec.Network.Internet {
		vars = append(vars, spec.Program.Online...)
		fsys.Files["/etc/nsswitch.conf"] = hostroot.File{Data: []byte("passwd: files\ngroup: files\nhosts: files dns\n"), Mode: 0o644}
		resolvers, err := os.ReadFile("/etc/resolv.conf")
		if err == nil {
			fsys.Files["/etc/resolv.conf"] = hostroot.File{Data: resolvers, Mode: 0o644}
		}
	}
	cfg.Rootfs = fsys
	cfg.Mountpoint = b.dir.Mountpoint()
	cfg.Mounts, cfg.Init.Folders = spec.Mounts, len(spec.Mounts) > 0
	cfg.Init.Dir = "/workspace"
	cfg.Init.Args, cfg.Init.Env = sandbox.Command(spec.Program.Argv, interpreter, sandbox.ProgramDir), supervise.Environment(spec.Program.Env, vars, supervise.Variables(spec.Env))
	cfg.Init.Sockets = true // in an empty network namespace, or in the place's if that is requested
	if err := b.dir.Record(spec.ID, record{}); err != nil {
		return nil, err
	}
	return &launch{cfg: cfg, prepare: func(pid int, cfg *supervisorConfig) error {
		if b.root {
			cfg.Init.UID, cfg.Init.GID = firstUser+pid, firstUser+pid
			for path, format := range map[string]string{
				"/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:%d:%[1]d:sandbox:/workspace:/bin/sh\n",
				"/etc/group":  "root:x:0:\nsandbox:x:%d:\n",
			} {
				cfg.Rootfs.Files[path] = hostroot.File{Data: fmt.Appendf(nil, format, cfg.Init.UID), Mode: 0o644}
			}
		}
		return nil
	}}, nil
}

// copyIn makes the root hold copies of dir's files instead of a bind mount of dir:
// a mount reveals to code where on the host it comes from.
func copyIn(fsys *hostroot.Rootfs, dir, target string) error {
	fsys.Binds = slices.DeleteFunc(fsys.Binds, func(b hostroot.Bind) bool { return b.Target == target })
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		fsys.Files[filepath.Join(target, rel)] = hostroot.File{Data: data, Mode: 0o644}
		return err
	})
}

// noFolders is why runs without namespaces see no folders of the host.
const noFolders = "folders of the host need namespaces, and this place allows none"

// planPlain plans a run in the place's own file system.
func (b *Engine) planPlain(ctx context.Context, spec *sandbox.Spec) (*launch, error) {
	if len(spec.Mounts) > 0 {
		return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: sandbox.ErrUnsupported, Err: errors.New(noFolders + ": use files")}
	}
	p, err := b.host.Find(ctx, spec.Program, spec.Root.Interpreter)
	if err != nil {
		return nil, err
	}
	if len(p.Replace) > 0 {
		return nil, errors.New("a virtual environment works only with a root of its own, which requires namespaces: name the base interpreter, with the packages installed there")
	}
	dir, err := b.dir.work(spec.ID, b.root)
	if err != nil {
		return nil, err
	}
	source, err := programdir.Install(ctx, b.dir.sharedDir(), spec.Program, p.Executable)
	if err != nil {
		return nil, err
	}
	workspace, tmp, packages, files := filepath.Join(dir, "workspace"), filepath.Join(dir, "tmp"), filepath.Join(dir, "packages"), filepath.Join(dir, "files")
	if err := putFiles(files, spec.Files); err != nil {
		return nil, err
	}
	cfg := b.base(spec)
	vars := []string{
		"HOME=" + workspace, "TMPDIR=" + tmp, "MPLCONFIGDIR=" + filepath.Join(tmp, "matplotlib"),
		sandbox.WorkspaceEnv + "=" + workspace, sandbox.FilesEnv + "=" + files, sandbox.PackagesEnv + "=" + packages,
	}
	if len(cfg.Devices) > 0 {
		if _, libraries := gpuDirs(); len(libraries) > 0 {
			vars = append(vars, "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		}
	}
	if spec.Network.Internet {
		vars = append(vars, spec.Program.Online...)
	}
	cfg.Init.Args, cfg.Init.Env, cfg.Init.Dir = sandbox.Command(spec.Program.Argv, p.Executable, source), supervise.Environment(spec.Program.Env, vars, supervise.Variables(spec.Env)), workspace
	cfg.Init.FileBytes = cfg.WorkspaceBytes
	cfg.Init.Sockets = spec.Network.Internet
	if !b.root {
		cfg.Init.Processes = 0 // the limit would count all processes of this user
		cfg.Init.SharedUser = true
	} else {
		cfg.Init.Umask = 0o077 // runs share /tmp and /dev/shm
	}
	if landlockVersion() > 0 {
		cfg.Init.Paths = b.paths(p, spec, &cfg, dir, source)
	}
	return &launch{cfg: cfg, prepare: func(pid int, cfg *supervisorConfig) error {
		if !b.root {
			return b.dir.Record(spec.ID, record{})
		}
		cfg.Init.UID, cfg.Init.GID = firstUser+pid, firstUser+pid
		if err := b.dir.Record(spec.ID, record{UID: cfg.Init.UID}); err != nil {
			return err
		}
		for _, d := range []string{workspace, tmp, packages} {
			if err := os.Chown(d, cfg.Init.UID, cfg.Init.GID); err != nil {
				return err
			}
		}
		if b.opts.Link != "" {
			if err := link(workspace, b.opts.Link); err != nil {
				b.log.Debug("cannot link the working directory", "run", spec.ID, "reason", err)
			}
		}
		return nil
	}}, nil
}

// link makes path a symbolic link to the workspace. It replaces an empty directory
// and the link of a run that is gone, and fails if there is anything else.
func link(workspace, path string) error {
	if target, err := os.Readlink(path); err == nil && isOurs(target) {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(path)
		}
	} else if fi, err := os.Lstat(path); err == nil && fi.IsDir() {
		_ = os.Remove(path) // an empty one, and nothing that is mounted
	}
	return os.Symlink(workspace, path)
}

// isOurs reports whether a link leads to a run's workspace.
func isOurs(target string) bool {
	return filepath.Base(target) == "workspace" && strings.HasPrefix(filepath.Base(filepath.Dir(filepath.Dir(target))), sharedPrefix)
}

// unlink removes the link of that workspace.
func unlink(workspace, path string) {
	if target, err := os.Readlink(path); err == nil && target == workspace {
		_ = os.Remove(path)
	}
}

// paths returns the parts of the place's file system that Landlock lets a run use.
func (b *Engine) paths(p *sandbox.Runtime, spec *sandbox.Spec, cfg *supervisorConfig, dir, source string) *paths {
	out := &paths{
		Run: []string{filepath.Join(p.Prefix, "bin"), filepath.Join(p.Prefix, "lib"), filepath.Join(p.Prefix, "lib64"), filepath.Join(dir, "packages")},
		Read: []string{source, filepath.Join(dir, "files"), filepath.Join(dir, "files.modes"), "/proc",
			"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/sys/devices/system/cpu"},
		Write:   []string{filepath.Join(dir, "workspace"), filepath.Join(dir, "tmp"), filepath.Join(dir, "packages")},
		Devices: append(plainDevices, cfg.Devices...),
		Connect: spec.Network.Internet,
	}
	if fsys, _, _, err := hostroot.Plan(p, b.opts.Home, source); err == nil {
		for _, bind := range fsys.Binds {
			out.Run = append(out.Run, bind.Source)
		}
	}
	if b.root {
		// Other users' files there are protected by their modes. The run's own are
		// removed with its user.
		out.Write = append(out.Write, sticky(sharedDirs)...)
	}
	if len(cfg.Devices) > 0 {
		dirs, _ := gpuDirs()
		out.Run = append(out.Run, dirs...)
		out.Read = append(out.Read, "/sys")
	}
	if spec.Network.Internet {
		out.Read = append(out.Read, "/etc/resolv.conf", "/etc/hosts")
	}
	return out
}

// sticky returns the directories in which users cannot rename the files of others:
// elsewhere a run could replace the directories of later runs.
func sticky(dirs []string) (out []string) {
	for _, dir := range dirs {
		if fi, err := os.Stat(dir); err == nil && fi.Mode()&os.ModeSticky != 0 {
			out = append(out, dir)
		}
	}
	return out
}

// putFiles writes the spec's files where the program copies them from.
func putFiles(dir string, files []sandbox.File) error {
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
	}
	modes := sandbox.Modes(files)
	if modes == nil {
		return nil
	}
	return os.WriteFile(dir+".modes", modes, 0o644)
}
