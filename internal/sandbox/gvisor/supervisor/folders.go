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

// openFolders opens the folders of the host. It follows no symbolic link: the path
// was checked, and what has taken its place since must not be shown.
func openFolders(mounts []sandbox.Mount) ([]*os.File, error) {
	var files []*os.File
	for _, m := range mounts {
		f, err := hostroot.OpenFolder(m.Source)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// mountFolders mounts the open folders below base, and makes their places in the
// root.
func mountFolders(d *rootDirs, mounts []sandbox.Mount, files []*os.File) error {
	for i, m := range mounts {
		if err := makePlace(d.root, m.Target); err != nil {
			return fmt.Errorf("the folder %s: %w", m.Source, err)
		}
		at := filepath.Join(d.base, foldersDir, string(m.Mode), strconv.Itoa(i))
		inner := filepath.Join(at, folderName)
		if err := os.MkdirAll(inner, 0o755); err != nil {
			return err
		}
		if err := hostroot.BindFolder(files[i], inner, m.Mode == sandbox.ReadWrite); err != nil {
			return fmt.Errorf("the folder %s: %w", m.Source, err)
		}
		d.folders = append(d.folders, specs.Mount{
			Destination: m.Target, Type: "bind", Source: at, Options: folderOptions(m.Mode),
		})
	}
	return nil
}

// makePlace makes the directory on which a folder is mounted. Where an image's own
// directory is in the way, an empty one covers it.
func makePlace(root, target string) error {
	at := filepath.Join(root, target)
	err := os.MkdirAll(at, 0o755)
	if !errors.Is(err, unix.EROFS) {
		return err
	}
	dir := at
	for {
		if _, err := os.Lstat(dir); err == nil || dir == root {
			break
		}
		dir = filepath.Dir(dir)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return fmt.Errorf("%s is read-only and has files in the image: use another place, such as /mnt/data", strings.TrimPrefix(dir, root))
	}
	if err := unix.Mount("sallyport", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=64k"); err != nil {
		return err
	}
	return os.MkdirAll(at, 0o755)
}

func folderOptions(mode sandbox.MountMode) []string {
	options := []string{"rbind", "nosuid", "noexec"}
	if mode == sandbox.ReadOnly {
		options = append(options, "ro")
	}
	return options
}

// folderMounts returns the mounts of a specification that are folders of the host.
func folderMounts(spec *specs.Spec) []specs.Mount {
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
