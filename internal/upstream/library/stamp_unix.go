//go:build linux || darwin

package library

import "golang.org/x/sys/unix"

func stampOf(path string) stamp {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return stamp{}
	}
	return stamp{size: st.Size, inode: st.Ino, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}
}
