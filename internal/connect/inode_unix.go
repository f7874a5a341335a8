//go:build unix

package connect

import (
	"io/fs"
	"os"
	"syscall"
)

// inode returns how many names a file has, and the number of its owner.
func inode(info fs.FileInfo) (names uint64, owner int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return uint64(st.Nlink), int(st.Uid), true
}

// keepOwner gives a file the owner and the group of another, as far as this user
// may.
func keepOwner(f *os.File, of fs.FileInfo) {
	now, err := f.Stat()
	if err != nil {
		return
	}
	have, ok := now.Sys().(*syscall.Stat_t)
	want, also := of.Sys().(*syscall.Stat_t)
	if !ok || !also {
		return
	}
	if have.Gid != want.Gid {
		_ = f.Chown(-1, int(want.Gid)) // a group of this user's, or it stays as it is
	}
	if have.Uid != want.Uid {
		_ = f.Chown(int(want.Uid), -1) // Notes says that only root may
	}
}
