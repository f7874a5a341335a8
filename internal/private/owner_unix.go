//go:build unix

package private

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// owner is the user and group of a file; -1 where that is not known.
func owner(info fs.FileInfo) (uid, gid int) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1, -1
	}
	return int(st.Uid), int(st.Gid)
}

func isOwn(info fs.FileInfo) bool {
	uid, _ := owner(info)
	return uid == os.Geteuid()
}

// trusted reports whether the owner can do everything on this machine anyway:
// root, or in a user namespace, where root has another number, the owner of the
// top directory.
func trusted(info, top fs.FileInfo) bool {
	uid, _ := owner(info)
	above, _ := owner(top)
	return uid == 0 || uid >= 0 && uid == above
}

// writable reports whether other users can write to a directory. A group with
// the number of the owner, or of root, is taken to have no other members.
func writable(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	uid, gid := owner(info)
	return mode&0o002 != 0 || mode&0o020 != 0 && gid != uid && gid != 0
}

func sticky(info fs.FileInfo) bool { return info.Mode()&fs.ModeSticky != 0 }

func exposes(mode fs.FileMode) bool { return mode&0o077 != 0 }

// describe names a directory with its owner and mode.
func describe(path string, info fs.FileInfo) string {
	uid, _ := owner(info)
	name := "user " + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = fmt.Sprintf("user %s (%d)", u.Username, uid)
	}
	return fmt.Sprintf("%s belongs to %s with mode %04o", path, name, info.Mode().Perm())
}
