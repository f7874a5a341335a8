package upgrade

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const errReadOnly = syscall.Errno(19) // ERROR_WRITE_PROTECT

// replace puts fresh in the place of path, and keeps what was there. A running
// executable cannot be overwritten or removed, but renamed. dir is for temporary
// files; what still runs stays there until a later upgrade removes it.
func replace(path, fresh, dir string) error {
	previous := previousOf(path)
	if err := os.Rename(previous, filepath.Join(dir, "old.exe")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(path, previous); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return errors.Join(err, os.Rename(previous, path))
	}
	return nil
}

// giveTo does nothing: a new file has the access list of its directory.
func giveTo(*os.File, fs.FileInfo) {}
