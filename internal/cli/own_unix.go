//go:build unix

package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// own says that nobody else can have put the directory there, or put anything
// into it: in a folder that all may write to, it must be this user's, no link,
// and closed to others.
func own(dir string) bool {
	parent, err := os.Stat(filepath.Dir(dir))
	if err != nil || parent.Mode().Perm()&0o002 == 0 {
		return err == nil
	}
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() || fi.Mode()&fs.ModeSymlink != 0 || fi.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
