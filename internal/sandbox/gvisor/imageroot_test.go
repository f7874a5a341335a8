//go:build linux && (amd64 || arm64)

package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

// TestPlanImage: nothing of ours is put below a link of an image, and nothing of
// an image takes the place of ours.
func TestPlanImage(t *testing.T) {
	tests := []struct {
		name  string
		dirs  []string
		files []string
		links map[string]string
		want  []string // of binds and links
	}{
		{"usual", []string{"usr/bin", "opt/conda", "etc/ssl", "proc", "tmp/x", "workspace/y", "dev", "sys"}, []string{"etc/passwd", "etc/mine", "top"}, map[string]string{"lib": "usr/lib", "etc/alt": "/usr/alt"},
			[]string{"/etc/alt -> /usr/alt", "/etc/mine", "/etc/ssl", "/lib -> usr/lib", "/opt/conda", "/top", "/usr"}},
		{"links where ours goes", []string{"elsewhere"}, nil, map[string]string{"opt": "/elsewhere", "etc": "/root", "tmp": "/", "workspace": "/home", "proc": "usr", "dev": "/dev", "sys": "/sys"},
			[]string{"/elsewhere"}},
		{"files where ours goes", nil, []string{"opt", "etc", "tmp"}, nil, nil},
		{"the guest's names", []string{"opt/sallyport/sallyport_guest", "opt/other", "etc"}, []string{"opt/sallyport-files.modes", "etc/hosts"}, map[string]string{"opt/sallyport-files": "/etc"},
			[]string{"/opt/other"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, d := range tt.dirs {
				if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for at, to := range tt.links {
				if err := os.Symlink(to, filepath.Join(dir, at)); err != nil {
					t.Fatal(err)
				}
			}
			fsys, err := planImage(dir)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, b := range fsys.Binds {
				got = append(got, b.Target)
				if b.Source != filepath.Join(dir, b.Target) {
					t.Errorf("%s shows %s", b.Target, b.Source)
				}
			}
			for at, to := range fsys.Links {
				got = append(got, at+" -> "+to)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q\nwant %q", got, tt.want)
			}
			below(t, fsys)
		})
	}
}

// below checks that no file and no directory of a root lies below a link of it.
func below(t *testing.T, fsys hostroot.Rootfs) {
	t.Helper()
	paths := []string{sandbox.ProgramDir, sandbox.FilesDir + "/x", sandbox.ModesFile, "/proc", "/dev", "/sys", "/tmp", "/workspace"}
	for p := range fsys.Files {
		paths = append(paths, p)
	}
	for _, b := range fsys.Binds {
		paths = append(paths, b.Target)
	}
	for link := range fsys.Links {
		for _, p := range paths {
			if p == link || strings.HasPrefix(p, link+"/") {
				t.Errorf("%s lies below the link %s", p, link)
			}
		}
	}
}

func TestPlanImageBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range maxBinds + 1 {
		if err := os.WriteFile(filepath.Join(dir, "etc", fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := planImage(dir); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

func TestImageOf(t *testing.T) {
	b := &Engine{opts: Options{Image: "default"}}
	for want, root := range map[string]sandbox.Root{"default": {}, "own": {Image: "own"}, "": {Interpreter: "/usr/bin/python3"}} {
		if got := b.imageOf(&sandbox.Spec{Root: root}); got != want {
			t.Errorf("%+v: %q, want %q", root, got, want)
		}
	}
	if _, err := b.openImage(t.Context(), "x"); err == nil {
		t.Error("an image from nowhere")
	}
}
