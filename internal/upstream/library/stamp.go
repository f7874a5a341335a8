package library

import (
	"path/filepath"
	"slices"
	"time"
)

// stamp identifies one state of a file without its content. The zero value
// means that there is no file.
type stamp struct {
	size         int64
	inode        uint64
	mtime, ctime int64
}

// settles is the age from which a file's times are reliable: two changes within
// one tick of the file system's clock have the same time.
const settles = 100 * time.Millisecond

// settled reports whether a file that was read at that time cannot have changed
// since without its stamp changing. A time in the future proves nothing.
func (s stamp) settled(read time.Time) bool {
	age := read.Sub(time.Unix(0, s.ctime))
	return s == (stamp{}) || age > settles || age < -time.Second
}

// watched is a path whose state shows whether anything has changed.
type watched struct {
	path    string
	stamp   stamp
	settled bool
}

// watch takes the stamps of paths whose files were read at that time. For a
// file in a missing folder, it watches the topmost missing folder, which many
// files share.
func watch(paths []string, read time.Time) []watched {
	seen := make(map[string]bool, len(paths))
	var out []watched
	for _, path := range paths {
		s := stampOf(path)
		for s == (stamp{}) {
			above := filepath.Dir(path)
			if above == path || stampOf(above) != (stamp{}) {
				break
			}
			path = above
		}
		if !seen[path] {
			seen[path] = true
			out = append(out, watched{path, s, s.settled(read)})
		}
	}
	return slices.Clip(out)
}
