//go:build linux

package hostroot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox/hostroot"
)

func TestOpenFolder(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(base, name) }
	if err := os.MkdirAll(at("real/folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("real/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link": "real/folder", "parent": "real"} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ path, want string }{
		{"real/folder", ""},
		{"gone", "is gone"},
		{"real/file", "is not a folder"},
		{"link", "is a symbolic link"},
		{"parent/folder", "is a symbolic link"},
		{"link/..", "is a symbolic link"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			got := ""
			f, err := hostroot.OpenFolder(base + "/" + tt.path)
			if err == nil {
				_ = f.Close()
			} else {
				got = err.Error()
			}
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("OpenFolder: got %q, want %q", got, tt.want)
			}
		})
	}
}
