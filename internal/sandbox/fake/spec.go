//go:build unix

package fake

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// check says what is wrong with a spec. The error has ErrUnsupported in its
// chain where the spec is good and the engine cannot do it.
func check(spec *sandbox.Spec) error {
	if err := spec.Check(); err != nil {
		return err
	}
	switch {
	case spec.Root.Image != "":
		return fmt.Errorf("%w: an image as root", sandbox.ErrUnsupported)
	case spec.Root.Packages != "":
		return fmt.Errorf("%w: an archive of packages", sandbox.ErrUnsupported)
	case spec.Network.Internet:
		return fmt.Errorf("%w: a network", sandbox.ErrUnsupported)
	case spec.Program == nil:
		return errors.New("no program")
	}
	return nil
}

// checkFolders says which folder of a spec is none, or not at its own path.
func checkFolders(mounts []sandbox.Mount) error {
	for _, m := range mounts {
		path, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return err
		}
		if fi, err := os.Stat(path); path != m.Source || err != nil || !fi.IsDir() {
			return fmt.Errorf("%s is not a folder", m.Source)
		}
	}
	return nil
}

// place writes the spec's files below dir.
func place(dir string, files []sandbox.File) error {
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(f.Mode) & 0o777
		if mode == 0 {
			mode = 0o644
		}
		if err := os.WriteFile(name, f.Data, mode); err != nil {
			return err
		}
		if err := os.Chmod(name, mode); err != nil {
			return err
		}
	}
	return nil
}
