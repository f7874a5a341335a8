//go:build unix

package flatten

import (
	"io/fs"
	"syscall"
)

// inode identifies a file.
type inode struct{ dev, ino uint64 }

// inodeOf returns a file's inode, and whether it may have several names.
func inodeOf(info fs.FileInfo) (inode, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}, false
	}
	return inode{uint64(st.Dev), st.Ino}, st.Nlink > 1
}
