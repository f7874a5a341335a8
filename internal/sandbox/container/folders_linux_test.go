package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// TestHides: engines that cannot show a folder of this machine to code say why.
func TestHides(t *testing.T) {
	root := os.Geteuid() == 0
	for _, tt := range []struct {
		name   string
		change func(*facts, *outside, *Options)
		want   string
	}{
		{"none", func(*facts, *outside, *Options) {}, ""},
		{"elsewhere", func(_ *facts, o *outside, _ *Options) { o.Local = false }, "on another machine"},
		{"own kernel", func(f *facts, _ *outside, _ *Options) { f.Runtime = "runsc" }, "a kernel of its own"},
		{"labels", func(f *facts, _ *outside, _ *Options) { f.SELinux = true }, "SELinux"},
		{"no filter", func(f *facts, _ *outside, _ *Options) { f.Seccomp = false }, "seccomp profile"},
		{"another filter", func(f *facts, _ *outside, _ *Options) { f.NoProfile = true }, "seccomp profile"},
		{"own users", func(_ *facts, _ *outside, o *Options) { o.UserNamespace = "auto" }, "container.userNamespace is auto"},
		{"mapped users", func(f *facts, _ *outside, _ *Options) { f.Podman, f.Remapped = false, true }, "userns-remap"},
		{"rootless Docker", func(f *facts, _ *outside, _ *Options) { f.Podman, f.Rootless = false, true }, "rootless Docker"},
		{"another user's", func(f *facts, _ *outside, _ *Options) { f.Rootless = true }, map[bool]string{true: "another user"}[root]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &Engine{opts: Options{Engine: Podman}}
			f, where := facts{Podman: true, Seccomp: true, Runtime: "crun"}, outside{Local: true}
			tt.change(&f, &where, &b.opts)
			got := b.hides(&f, &inspection{outside: where, runtime: f.Runtime, inside: inside{Kernel: "4.4.0 gvisor"}})
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAsWanted: what a container's mount table must say about a folder.
func TestAsWanted(t *testing.T) {
	const rest = " - ext4 /dev/vda rw\n"
	readOnly := bind{source: "/src", target: "/mnt/my data", readOnly: true, ino: 1}
	hidden := bind{source: "/empty", target: "/mnt/my data/pipe", readOnly: true}
	for _, tt := range []struct{ name, info, want string }{
		{"as wanted", "36 35 98:0 /src /mnt/my\\040data ro,nosuid" + rest, ""},
		{"with what is hidden", "36 35 98:0 /src /mnt/my\\040data ro" + rest + "37 36 98:0 /empty /mnt/my\\040data/pipe ro" + rest, ""},
		{"missing", "36 35 98:0 /src /mnt ro" + rest, "has not mounted"},
		{"writable", "36 35 98:0 /src /mnt/my\\040data rw" + rest, "ignores that the folder"},
		{"linked", "36 35 98:0 /src /mnt/my\\040data ro master:1" + rest, "later mounts"},
		{"shared", "36 35 98:0 /src /mnt/my\\040data ro shared:1" + rest, "later mounts"},
		{"more below", "36 35 98:0 /src /mnt/my\\040data ro" + rest + "37 36 98:0 / /mnt/my\\040data/disk rw" + rest, "another file system"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := readOnly.asWanted(hostroot.MountPoints(tt.info), []bind{readOnly, hidden}); err != nil {
				got = err.Error()
			}
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAnotherFolder: where an engine mounts something else than what was opened, or
// nothing, no code runs, and nothing is left.
func TestAnotherFolder(t *testing.T) {
	f := newFake(t)
	b := f.backend(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, img, err := b.ready(ctx, &sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	img.inspection.outside.Local, img.inspection.runtime = true, "crun"
	spec := f.spec(t, "folder")
	spec.Mounts = []sandbox.Mount{{Source: t.TempDir(), Target: "/mnt/none", Mode: sandbox.ReadOnly}}
	_, err = b.Start(ctx, spec) // a plain process sees no mounts
	if os.Geteuid() == 0 && errors.Is(err, os.ErrPermission) {
		t.Skip("this root cannot mount: ", err)
	}
	if err == nil || !strings.Contains(err.Error(), "/mnt/none") {
		t.Errorf("got %v, want an error that names the place", err)
	}
	if left := f.containers(t); len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
	if left, err := filepath.Glob(filepath.Join(b.preparedFolders(), "*")); err != nil || len(left) > 0 {
		t.Errorf("mounts are left: %q, %v", left, err)
	}
}

// TestDropFolders: what a killed program leaves is unmounted, and the folder keeps
// its files.
func TestDropFolders(t *testing.T) {
	b := newFake(t).backend(t)
	source := t.TempDir()
	file := filepath.Join(source, "file")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, err := hostroot.OpenFolder(source)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	at, err := b.attachFolder(folder, sandbox.ReadWrite, "dead-run.0")
	if err != nil {
		t.Skip("this user cannot mount: ", err)
	}
	b.dropFolders("other-")
	if got, err := os.ReadFile(filepath.Join(at, "file")); err != nil || string(got) != "data" {
		t.Errorf("another program's folder: got %q, %v", got, err)
	}
	b.dropFolders("dead-")
	if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its place: got %v, want none", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "data" {
		t.Errorf("its file: got %q, %v", got, err)
	}
}
