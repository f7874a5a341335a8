package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

func euid() int { return os.Geteuid() }

// openCopied opens what is in a folder that is copied.
func openCopied(path string) (*os.Root, error) {
	f, err := hostroot.OpenFolder(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Root()
}

// bindFolders prepares folders that are mounted. Root gives the engine a mount of its
// own, in which the folder's owner appears as the container's user, at a path that no
// one else can change. Others give it the folder's path, and run the
// container as themselves.
func (b *Engine) bindFolders(ctx context.Context, f *facts, instance, run string, mounts []sandbox.Mount) (_ *folders, err error) {
	out := &folders{}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	if euid() != 0 {
		out.user = fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
		if f.Rootless {
			out.userns = "keep-id"
		}
	} else {
		out.release = func() { b.dropFolders(instance + "-" + run + ".") }
	}
	for i, m := range mounts {
		folder, err := hostroot.OpenFolder(m.Source)
		if err != nil {
			return out, err
		}
		shown := bind{source: m.Source, target: m.Target, readOnly: m.Mode != sandbox.ReadWrite, dev: folder.Dev, ino: folder.Ino}
		if euid() == 0 {
			shown.source, err = b.attachFolder(folder, m.Mode, fmt.Sprintf("%s-%s.%d", instance, run, i))
		} else {
			err = giveable(folder)
		}
		var channels []bind
		if err == nil {
			channels, err = b.hideChannels(ctx, folder, m.Target)
		}
		folder.Close()
		if err != nil {
			return out, err
		}
		out.binds = append(append(out.binds, shown), channels...)
	}
	return out, nil
}

// hideChannels returns mounts of an empty file over the pipes and devices in a folder,
// by which code could reach a process.
func (b *Engine) hideChannels(ctx context.Context, folder *hostroot.Folder, target string) (hidden []bind, err error) {
	names, err := folder.Channels(ctx)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	const empty = "empty"
	if err := b.opts.State.Sub(empty).Write(empty, nil); err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.ContainsAny(name, ",\"\n") {
			return nil, fmt.Errorf("%w: the folder %s has a pipe or device that cannot be hidden, %q. Move it, or use mode copy", sandbox.ErrUnsupported, folder.Name(), name)
		}
		hidden = append(hidden, bind{source: b.opts.State.Sub(empty).Path(empty), target: target + "/" + name, readOnly: true})
	}
	return hidden, nil
}

// giveable returns an error if an engine cannot mount the folder by its path.
func giveable(folder *hostroot.Folder) error {
	path := folder.Name()
	if strings.ContainsAny(path, ",\"\n") {
		return fmt.Errorf("%w: the folder %q: the path of a folder for a container has no comma or quote. Rename it, or use mode copy", sandbox.ErrUnsupported, path)
	}
	mounts, err := hostroot.MountsBelow(path)
	if err != nil {
		return err
	}
	for _, at := range mounts {
		if at != path {
			return fmt.Errorf("%w: the folder %s: another file system is mounted in it, at %s. Choose a folder without one, or use engine gvisor", sandbox.ErrUnsupported, path, at)
		}
	}
	return nil
}

// preparedFolders holds mounts while engines start containers with them.
func (b *Engine) preparedFolders() string { return b.opts.State.Sub("folders").Path("") }

// attachFolder mounts a folder where only root can reach it, for the engine to find.
func (b *Engine) attachFolder(folder *hostroot.Folder, mode sandbox.MountMode, name string) (string, error) {
	uid, gid, _ := strings.Cut(b.opts.User, ":")
	u, err := strconv.Atoi(uid)
	g, err2 := strconv.Atoi(gid)
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	tree, err := folder.Clone(mode, false, u, g)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	at := filepath.Join(b.preparedFolders(), name)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", err
	}
	return at, hostroot.Attach(tree, at)
}

// dropFolders unmounts prepared folders whose names begin so. It removes nothing
// but empty directories: a mount that is left must not lose its files.
func (b *Engine) dropFolders(prefix string) {
	entries, _ := os.ReadDir(b.preparedFolders())
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		at := filepath.Join(b.preparedFolders(), e.Name())
		if err := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL {
			b.log.Warn("cannot unmount a folder", "at", at, "error", err)
			continue
		}
		if err := unix.Rmdir(at); err != nil {
			b.log.Warn("cannot remove the place of a folder", "at", at, "error", err)
		}
	}
}

// verify returns an error if the container sees another folder than the one that
// was opened, or sees it in another way: engines take paths, which may lead
// elsewhere by then, and may ignore options.
func (fo *folders) verify(ctx context.Context, b *Engine, name string) error {
	if len(fo.binds) == 0 {
		return nil
	}
	state, err := b.cli.inspectContainer(ctx, name)
	if err != nil {
		return err
	}
	dir := "/proc/" + strconv.Itoa(state.Pid)
	info, err := os.ReadFile(dir + "/mountinfo")
	if err != nil {
		return fmt.Errorf("the container's folders cannot be verified: %w", err)
	}
	mounts := hostroot.MountPoints(string(info))
	for _, m := range fo.binds {
		if m.ino != 0 {
			if err := m.isAt(dir + "/root"); err != nil {
				return err
			}
		}
		if err := m.asWanted(mounts, fo.binds); err != nil {
			return err
		}
	}
	return nil
}

// isAt returns an error if another folder is at the place in a root.
func (m *bind) isAt(root string) error {
	in, err := os.Open(root)
	if err != nil {
		return fmt.Errorf("the container's folders cannot be verified: %w", err)
	}
	defer in.Close()
	fd, err := unix.Openat2(int(in.Fd()), m.target, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return fmt.Errorf("the folder at %s in the container: %w", m.target, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Dev != m.dev || st.Ino != m.ino {
		return fmt.Errorf("the engine mounted another folder at %s than %s: the path led elsewhere meanwhile, or the engine sees other files than this program. The container was removed", m.target, m.source)
	}
	return nil
}

// asWanted returns an error if the folder is mounted in another way.
func (m *bind) asWanted(mounts []hostroot.MountPoint, wanted []bind) error {
	found := false
	for _, have := range mounts {
		switch {
		case strings.HasPrefix(have.At, m.target+"/") && !slices.ContainsFunc(wanted, func(w bind) bool { return w.target == have.At }):
			return fmt.Errorf("the container has another file system in its folder %s, at %s", m.target, have.At)
		case have.At != m.target:
		case m.readOnly && !slices.Contains(have.Options, "ro"):
			return fmt.Errorf("the engine ignores that the folder %s is read-only", m.target)
		case have.Linked:
			return fmt.Errorf("later mounts in the folder %s on the host would appear in the container", m.target)
		default:
			found = true
		}
	}
	if !found {
		return fmt.Errorf("the engine has not mounted the folder %s", m.target)
	}
	return nil
}
