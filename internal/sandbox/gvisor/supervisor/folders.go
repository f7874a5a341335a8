//go:build linux && (amd64 || arm64)

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// restoreAnnotation marks the specification of a sandbox that is to be restored.
const restoreAnnotation = "io.sallyport.restore"

// Folders are mounted in the supervisor's own tmpfs, at folders/MODE/NUMBER/folder,
// and shown from there. What the runtime mounts is the directory above: the sandbox's
// kernel looks at it, too, when code goes up from the folder, and the folder itself is
// private to its owner.
const (
	foldersDir    = "folders"
	folderName    = "folder"
	modeReadWrite = string(sandbox.ReadWrite)
	modeCopy      = string(sandbox.Copy)
)

// mountFolders mounts the open folders below base, and makes their places in the
// root.
func mountFolders(d *rootDirs, mounts []sandbox.Mount, files []*hostroot.Folder) error {
	for i, m := range mounts {
		if err := makePlace(d.root, m.Target); err != nil {
			return fmt.Errorf("the folder %s: %w", m.Source, err)
		}
		mount := folderMount(d.base, i, m)
		inner := filepath.Join(mount.Source, folderName)
		if err := os.MkdirAll(inner, 0o755); err != nil {
			return err
		}
		if err := hostroot.BindFolder(files[i], inner, m.Mode == sandbox.ReadWrite); err != nil {
			return fmt.Errorf("the folder %s: %w", m.Source, err)
		}
		d.folders = append(d.folders, mount)
	}
	return nil
}

// makePlace makes the directory on which a folder is mounted. It follows no link: an
// image may have put it there. Where an image's own directory is in the way, an empty
// one covers it.
func makePlace(root, target string) error {
	dir, covered := root, false
	for _, name := range strings.Split(strings.TrimPrefix(target, "/"), "/") {
		parent := dir
		dir = filepath.Join(parent, name)
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, unix.EROFS) && !covered {
			covered = true
			if err = cover(parent); err != nil {
				return fmt.Errorf("its place %s cannot be made in the image (%w): use another, such as /mnt/data", target, err)
			}
			err = os.Mkdir(dir, 0o755)
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrExist) {
			return err
		}
		if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
			return fmt.Errorf("its place %s is taken: %s is not a directory in the sandbox. Use another, such as /data", target, strings.TrimPrefix(dir, root))
		}
	}
	return nil
}

// cover mounts an empty directory over an empty one that is read-only.
func cover(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s has files there", filepath.Base(dir))
	}
	return unix.Mount("sallyport", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=64k")
}

// folderMount returns the mount of the number i.
func folderMount(base string, i int, m sandbox.Mount) specs.Mount {
	options := []string{"rbind", "nosuid", "noexec"}
	if m.Mode == sandbox.ReadOnly {
		options = append(options, "ro")
	}
	return specs.Mount{
		Destination: m.Target, Type: "bind", Options: options,
		Source: filepath.Join(base, foldersDir, string(m.Mode), strconv.Itoa(i)),
	}
}

// folderMounts returns the mounts of a specification that are folders of the host. In
// one that this package has not made, as where Podman uses this program as its
// runtime, there are none: a mount may be a file there.
func folderMounts(spec *specs.Spec) []specs.Mount {
	if _, ours := spec.Annotations[copyBytesAnnotation]; !ours {
		return nil
	}
	var out []specs.Mount
	for _, m := range spec.Mounts {
		if specutils.HasMountConfig(m) {
			out = append(out, m)
		}
	}
	return out
}

// folderMode returns the mode of such a mount.
func folderMode(m specs.Mount) string { return filepath.Base(filepath.Dir(m.Source)) }

// annotations returns what the runtime's processes must know about a sandbox with
// folders.
func annotations(cfg *gvisor.SupervisorConfig) map[string]string {
	a := map[string]string{copyBytesAnnotation: strconv.FormatInt(cfg.WorkspaceBytes, 10)}
	if len(cfg.Restore) > 0 {
		a[restoreAnnotation] = "true"
	}
	return a
}

// copyBytesAnnotation bounds what code writes to the copy of a folder.
const copyBytesAnnotation = "io.sallyport.copyBytes"

// coverCopies puts a layer of memory over each folder of which the sandbox has a copy:
// what code writes is there, and what it does not change is read from the folder. The
// runtime's own settings know one layer for all mounts.
func coverCopies(f *flag.FlagSet, spec *specs.Spec) error {
	confs, ok := f.Lookup("gofer-mount-confs").Value.(*specutils.GoferMountConfFlags)
	mounts := folderMounts(spec)
	if !ok || len(*confs) != len(mounts)+1 { // the root is the first
		return fmt.Errorf("%d mounts of folders have no settings", len(mounts))
	}
	for i, m := range mounts {
		if folderMode(m) == modeCopy {
			(*confs)[i+1].Upper = specutils.MemoryOverlay
			(*confs)[i+1].Size = spec.Annotations[copyBytesAnnotation]
		}
	}
	return nil
}

// fileServerCmd starts gVisor's file server, which serves folders in our own way.
type fileServerCmd struct{ cmd.Gofer }

// Execute implements subcommands.Command.
func (c *fileServerCmd) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	spec, err := specification(f, args[0].(*config.Config))
	if err == nil && spec != nil && len(folderMounts(spec)) > 0 {
		serveFolders(spec)
		err = coverCopies(f, spec)
	}
	if err != nil {
		util.Fatalf("preparing folders: %v", err)
	}
	return c.Gofer.Execute(ctx, f, args...)
}
