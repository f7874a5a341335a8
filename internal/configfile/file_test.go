//go:build unix

package configfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/configfile"
)

// home returns a directory that other users cannot write to.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReplace(t *testing.T) {
	path := filepath.Join(home(t), ".config", "sallyport", "config.yaml")
	change := func(want, text string) error {
		f, err := configfile.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		before, err := f.Read()
		if err != nil || string(before) != want {
			t.Errorf("read %q, %v; want %q", before, err, want)
		}
		return f.Replace(before, []byte(text))
	}
	if err := change("", "a: 1\n"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file has mode %v (%v), want 0600", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := change("a: 1\n", "a: 2\n"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has mode %v (%v), want its own, 0640", info.Mode(), err)
	}

	f, err := configfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before, err := f.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("other: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Replace(before, []byte("lost: 1\n")); !errors.Is(err, configfile.ErrChanged) {
		t.Errorf("replacing what another program changed: %v, want ErrChanged", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v (%v), want the file only", entries, err)
	}
}

// TestUnsafePlaces: a link may lead to a folder of this user, as those who keep
// their settings under version control have it, and nowhere else.
func TestUnsafePlaces(t *testing.T) {
	dir := home(t)
	file := filepath.Join(dir, "config.yaml")
	dots := filepath.Join(dir, "dots")
	open := filepath.Join(dir, "open")
	for path, mode := range map[string]os.FileMode{dots: 0o755, open: 0o777} {
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "config.yaml"), []byte("a: 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for target, ok := range map[string]bool{"dots/config.yaml": true, "open/config.yaml": false, "nowhere": false, "dots": false} {
		if err := os.Symlink(filepath.Join(dir, target), file); err != nil {
			t.Fatal(err)
		}
		f, err := configfile.Open(file)
		if (err == nil) != ok {
			t.Errorf("a link to %s: %v, want it to work: %v", target, err, ok)
		}
		if err == nil {
			if err := f.Replace([]byte("a: 1\n"), []byte("a: 2\n")); err != nil {
				t.Error(err)
			}
			f.Close()
			if b, err := os.ReadFile(filepath.Join(dir, target)); err != nil || string(b) != "a: 2\n" {
				t.Errorf("the target has %q (%v), want the change", b, err)
			}
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := configfile.Open(filepath.Join(open, "config.yaml")); err == nil {
		t.Error("a folder that all can write to is accepted")
	}
}
