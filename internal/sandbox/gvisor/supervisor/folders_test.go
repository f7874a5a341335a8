//go:build linux && (amd64 || arm64)

package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
)

func TestMakePlace(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	for _, dir := range []string{"mnt", "image", "image/full"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"out": outside, "up": "../..", "in": "mnt"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string]string{
		"/mnt/data": "", "/data": "", "/a/b/c": "", "/mnt": "",
		"/out/data": "/out is not a directory", "/up/data": "/up is not a directory", "/in/data": "/in is not a directory",
		"/out": "/out is not a directory", "/file/data": "/file is not a directory",
	} {
		got := ""
		if err := makePlace(root, target); err != nil {
			got = err.Error()
		} else if fi, err := os.Lstat(filepath.Join(root, target)); err != nil || !fi.IsDir() {
			t.Errorf("%s: got %v (%v), want a directory", target, fi, err)
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside of the root: got %v (%v), want nothing", entries, err)
	}
}

// TestMakePlaceInImage makes places in the read-only directories of an image.
func TestMakePlaceInImage(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"empty", "full/of"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"empty", "full"} {
		dir := filepath.Join(root, name)
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("only root can mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		if err := unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := makePlace(root, "/empty/a/b"); err != nil {
		t.Errorf("in an empty directory: got %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(root, "empty"), unix.MNT_DETACH) })
	if err := makePlace(root, "/full/a"); err == nil || !strings.Contains(err.Error(), "full has files there") {
		t.Errorf("in a directory with files: got %v, want an error that says so", err)
	}
}

func TestCoverCopies(t *testing.T) {
	cfg := &gvisor.SupervisorConfig{WorkspaceBytes: 1 << 20}
	dirs := &rootDirs{root: "/root"}
	for i, mode := range []sandbox.MountMode{sandbox.ReadOnly, sandbox.Copy, sandbox.ReadWrite} {
		dirs.folders = append(dirs.folders, folderMount("/base", i, sandbox.Mount{Target: "/mnt/" + string(mode), Mode: mode}))
	}
	var confs specutils.GoferMountConfFlags
	if err := confs.Set("lisafs:none,lisafs:none,lisafs:none,lisafs:none"); err != nil {
		t.Fatal(err)
	}
	f := flag.NewFlagSet("test", flag.ContinueOnError)
	f.Var(&confs, "gofer-mount-confs", "")
	if err := coverCopies(f, ociSpec(cfg, dirs)); err != nil {
		t.Fatal(err)
	}
	if got, want := confs.String(), "lisafs:none,lisafs:none,lisafs:memory:size=1048576,lisafs:none"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	dirs.folders = dirs.folders[:1]
	if err := coverCopies(f, ociSpec(cfg, dirs)); err == nil {
		t.Error("settings for other mounts: got no error")
	}
}
