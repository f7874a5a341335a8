//go:build !unix

package flatten

import "io/fs"

// inode identifies a file.
type inode struct{}

// inodeOf reports that every file has one name.
func inodeOf(fs.FileInfo) (inode, bool) { return inode{}, false }
