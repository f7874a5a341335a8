package snapshot

import (
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Free returns the number of free bytes on the store's disk, if that is known.
func (s *Store) Free() int64 {
	for dir := s.path; ; dir = filepath.Dir(dir) {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil {
			return int64(min(st.Bavail, math.MaxInt64/uint64(st.Bsize))) * st.Bsize
		}
		if !os.IsNotExist(err) || dir == filepath.Dir(dir) {
			return math.MaxInt64
		}
	}
}
