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

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/hostroot"
)

const (
	nobody = 65534
	// firstUser begins the users that runs get, one each, that nobody else has:
	// beyond what systems give out, and below what is a sign in 32 bits.
	firstUser = 0x70000000
	// firstKiller begins as many users that never have a process.
	firstKiller = 0x60000000
)

// launch is a run that is ready to be started.
type launch struct {
	executable string
	userns     bool // the stage gets a user namespace
	cfg        stageConfig
	// prepare is called when the stage exists, with its process number.
	prepare func(pid int, cfg *stageConfig) error
}

// base is what both ways of running code have in common.
func (b *Backend) base(spec *sandbox.Spec) stageConfig {
	l := spec.Limits.WithDefaults()
	cfg := stageConfig{
		MemoryBytes: l.MemoryBytes, WorkspaceBytes: l.WorkspaceBytes, TmpBytes: l.TmpBytes,
		Entry: entryConfig{
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
		// Its driver maps all of its memory, and locks what it copies from.
		cfg.Entry.AddressSpace, cfg.Entry.MemoryLocked = 0, 0
		cfg.Sys = true
	}
	return cfg
}

// env is the guest's environment: each variable once, the last of its name.
func env(spec *sandbox.Spec, more ...string) []string {
	all := append(guest.Environ(), more...)
	for k, v := range spec.Env {
		all = append(all, k+"="+v)
	}
	place := map[string]int{}
	var out []string
	for _, entry := range all {
		name, _, _ := strings.Cut(entry, "=")
		if i, there := place[name]; there {
			out[i] = entry
			continue
		}
		place[name] = len(out)
		out = append(out, entry)
	}
	return out
}

// gpuDevices are the devices of GPUs that the place has.
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

// gpuDirs hold the libraries of GPUs, beside those of the system.
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
func (b *Backend) planNamespaces(ctx context.Context, place *instance, spec *sandbox.Spec) (*launch, error) {
	p, err := b.interpreter(ctx, spec.Root.Python)
	if err != nil {
		return nil, err
	}
	dir, err := guest.Install(ctx, b.opts.CacheDir, p.Executable)
	if err != nil {
		return nil, err
	}
	fsys, python, vars, err := hostroot.Plan(p, b.opts.Home, dir, guest.Dir)
	if err != nil {
		return nil, err
	}
	if err := copyIn(&fsys, dir, guest.Dir); err != nil {
		return nil, err
	}
	var modes []byte
	for _, f := range spec.Files {
		fsys.Files[filepath.Join(guest.FilesDir, f.Path)] = hostroot.File{Data: f.Data, Mode: 0o644}
		if mode := f.Mode & 0o777; mode != 0 {
			modes = fmt.Appendf(modes, "%o %s\x00", mode, f.Path)
		}
	}
	if modes != nil {
		fsys.Files[guest.ModesFile] = hostroot.File{Data: modes, Mode: 0o644}
	}
	cfg := b.base(spec)
	cfg.Namespaces, cfg.UserNamespace = true, !b.root
	cfg.OwnNetwork = spec.Network == sandbox.NetworkNone
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
	if spec.Network == sandbox.NetworkInternet {
		fsys.Files["/etc/nsswitch.conf"] = hostroot.File{Data: []byte("passwd: files\ngroup: files\nhosts: files dns\n"), Mode: 0o644}
		resolvers, err := os.ReadFile("/etc/resolv.conf")
		if err == nil {
			fsys.Files["/etc/resolv.conf"] = hostroot.File{Data: resolvers, Mode: 0o644}
		}
	}
	cfg.Rootfs = fsys
	cfg.Mountpoint = place.mountpoint()
	cfg.Entry.Dir = "/workspace"
	cfg.Entry.Args, cfg.Entry.Env = guest.Argv(python), env(spec, vars...)
	cfg.Entry.Sockets = true // of a network namespace in which there is nobody, or of the place's where that is asked for
	if err := place.record(spec.ID, record{}); err != nil {
		return nil, err
	}
	return &launch{executable: b.opts.Executable, userns: !b.root, cfg: cfg, prepare: func(pid int, cfg *stageConfig) error {
		if b.root {
			cfg.Entry.UID, cfg.Entry.GID = firstUser+pid, firstUser+pid
			for path, format := range map[string]string{
				"/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:%d:%[1]d:sandbox:/workspace:/bin/sh\n",
				"/etc/group":  "root:x:0:\nsandbox:x:%d:\n",
			} {
				cfg.Rootfs.Files[path] = hostroot.File{Data: fmt.Appendf(nil, format, cfg.Entry.UID), Mode: 0o644}
			}
		}
		return nil
	}}, nil
}

// copyIn has the root hold the files of dir instead of showing dir itself: a
// mount tells code where on the host it comes from.
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

// planPlain plans a run in the place's own file system.
func (b *Backend) planPlain(ctx context.Context, place *instance, spec *sandbox.Spec) (*launch, error) {
	p, err := b.interpreter(ctx, spec.Root.Python)
	if err != nil {
		return nil, err
	}
	if p.Packages != "" {
		return nil, errors.New("the packages of a virtual environment need a root of a run's own, which needs namespaces: name the interpreter itself, with its packages installed")
	}
	dir, err := place.work(spec.ID, b.root)
	if err != nil {
		return nil, err
	}
	source, err := guest.Install(ctx, place.sharedDir(), p.Executable)
	if err != nil {
		return nil, err
	}
	workspace, tmp, files := filepath.Join(dir, "workspace"), filepath.Join(dir, "tmp"), filepath.Join(dir, "files")
	if err := putFiles(files, spec.Files); err != nil {
		return nil, err
	}
	cfg := b.base(spec)
	args := guest.Argv(p.Executable)
	for i, a := range args {
		if rest, ok := strings.CutPrefix(a, guest.Dir); ok {
			args[i] = source + rest
		}
	}
	vars := []string{
		"HOME=" + workspace, "TMPDIR=" + tmp, "MPLCONFIGDIR=" + filepath.Join(tmp, "matplotlib"),
		guest.WorkspaceEnv + "=" + workspace, guest.FilesEnv + "=" + files,
	}
	if len(cfg.Devices) > 0 {
		if _, libraries := gpuDirs(); len(libraries) > 0 {
			vars = append(vars, "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		}
	}
	cfg.Entry.Args, cfg.Entry.Env, cfg.Entry.Dir = args, env(spec, vars...), workspace
	cfg.Entry.FileBytes = cfg.WorkspaceBytes
	cfg.Entry.Sockets = spec.Network == sandbox.NetworkInternet
	if !b.root {
		cfg.Entry.Processes = 0 // the limit would be on all that this user has
		cfg.Entry.SharedUser = true
	} else {
		cfg.Entry.Umask = 0o077 // runs share /tmp and /dev/shm
	}
	if landlockVersion() > 0 {
		cfg.Entry.Paths = b.paths(p, spec, &cfg, dir, source)
	}
	return &launch{executable: b.opts.Executable, cfg: cfg, prepare: func(pid int, cfg *stageConfig) error {
		if !b.root {
			return place.record(spec.ID, record{})
		}
		cfg.Entry.UID, cfg.Entry.GID = firstUser+pid, firstUser+pid
		if err := place.record(spec.ID, record{UID: cfg.Entry.UID}); err != nil {
			return err
		}
		for _, d := range []string{workspace, tmp} {
			if err := os.Chown(d, cfg.Entry.UID, cfg.Entry.GID); err != nil {
				return err
			}
		}
		if b.opts.Link != "" {
			if err := link(workspace, b.opts.Link); err != nil {
				b.log.Debug("the working directory has its own path alone", "run", spec.ID, "reason", err)
			}
		}
		return nil
	}}, nil
}

// link makes path a way to the workspace, unless there is something: another
// run's link, too, but neither one whose run is gone nor an empty directory.
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

// isOurs says whether a link leads to a run's workspace.
func isOurs(target string) bool {
	return filepath.Base(target) == "workspace" && strings.HasPrefix(filepath.Base(filepath.Dir(filepath.Dir(target))), sharedPrefix)
}

// unlink removes the link of that workspace.
func unlink(workspace, path string) {
	if target, err := os.Readlink(path); err == nil && target == workspace {
		_ = os.Remove(path)
	}
}

// paths are what Landlock leaves a run of the place's file system.
func (b *Backend) paths(p *hostroot.Interpreter, spec *sandbox.Spec, cfg *stageConfig, dir, source string) *paths {
	out := &paths{
		Run: []string{filepath.Join(p.Prefix, "bin"), filepath.Join(p.Prefix, "lib"), filepath.Join(p.Prefix, "lib64")},
		Read: []string{source, filepath.Join(dir, "files"), filepath.Join(dir, "files.modes"), "/proc",
			"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/sys/devices/system/cpu"},
		Write:   []string{filepath.Join(dir, "workspace"), filepath.Join(dir, "tmp")},
		Devices: append(plainDevices, cfg.Devices...),
		Connect: spec.Network == sandbox.NetworkInternet,
	}
	if fsys, _, _, err := hostroot.Plan(p, b.opts.Home, source, guest.Dir); err == nil {
		for _, bind := range fsys.Binds {
			out.Run = append(out.Run, bind.Source)
		}
	}
	if b.root {
		// Others' files there are others'; the run's own go with its user.
		out.Write = append(out.Write, sticky(sharedDirs)...)
	}
	if len(cfg.Devices) > 0 {
		dirs, _ := gpuDirs()
		out.Run = append(out.Run, dirs...)
		out.Read = append(out.Read, "/sys")
	}
	if spec.Network == sandbox.NetworkInternet {
		out.Read = append(out.Read, "/etc/resolv.conf", "/etc/hosts")
	}
	return out
}

// sticky are those of the directories where nobody may rename what is others':
// elsewhere a run could put its own directory in the place of later runs'.
func sticky(dirs []string) (out []string) {
	for _, dir := range dirs {
		if fi, err := os.Stat(dir); err == nil && fi.Mode()&os.ModeSticky != 0 {
			out = append(out, dir)
		}
	}
	return out
}

// putFiles writes the spec's files where the guest copies them from.
func putFiles(dir string, files []sandbox.File) error {
	var modes []byte
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
		if mode := f.Mode & 0o777; mode != 0 {
			modes = fmt.Appendf(modes, "%o %s\x00", mode, f.Path)
		}
	}
	if modes == nil {
		return nil
	}
	return os.WriteFile(dir+".modes", modes, 0o644)
}
