//go:build !windows

package upgrade

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const errReadOnly = syscall.EROFS

// replace puts fresh in the place of path, and keeps what was there. There is an
// executable at path at every moment. dir is for temporary files.
func replace(path, fresh, dir string) error {
	old := filepath.Join(dir, "old")
	if err := duplicate(path, old); err != nil {
		return err
	}
	if err := os.Rename(old, previousOf(path)); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	if d, err := os.Open(filepath.Dir(path)); err == nil {
		_ = d.Sync() // without it the rename may be lost with the power, not the file
		d.Close()
	}
	return nil
}

// giveTo gives a file to the owner of another, where this user may do so.
func giveTo(file *os.File, old fs.FileInfo) {
	if s, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = file.Chown(int(s.Uid), int(s.Gid))
	}
}
