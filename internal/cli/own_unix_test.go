//go:build unix

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOwn(t *testing.T) {
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	closed := t.TempDir()
	for _, parent := range []string{open, closed} {
		err := errors.Join(os.Mkdir(filepath.Join(parent, "mine"), 0o700), os.Mkdir(filepath.Join(parent, "writable"), 0o700),
			os.Chmod(filepath.Join(parent, "writable"), 0o777), os.Symlink(closed, filepath.Join(parent, "link")))
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		filepath.Join(open, "mine"): true, filepath.Join(open, "writable"): false, filepath.Join(open, "link"): false, filepath.Join(open, "none"): false,
		filepath.Join(closed, "mine"): true, filepath.Join(closed, "link"): true,
	} {
		if got := own(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if os.Geteuid() == 0 {
		other := filepath.Join(open, "other")
		if err := errors.Join(os.Mkdir(other, 0o700), os.Chown(other, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		if own(other) {
			t.Error("another user's directory is taken for one's own")
		}
		if got := firstUsable([]string{other, filepath.Join(open, "mine")}); got != filepath.Join(open, "mine") {
			t.Error(got)
		}
	}
}
