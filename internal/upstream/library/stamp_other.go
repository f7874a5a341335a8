//go:build !linux && !darwin

package library

import "os"

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{size: info.Size(), inode: 1, mtime: info.ModTime().UnixNano(), ctime: info.ModTime().UnixNano()}
}
