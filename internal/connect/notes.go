package connect

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// windows is how a line of a file from Windows ends.
var (
	windows = []byte("\r\n")
	mark    = []byte("\xef\xbb\xbf") // a byte order mark
)

// Notes says what the diff of a change does not show: how the file is written, and
// what becomes of it when it is replaced.
func (c Change) Notes() (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if bytes.HasPrefix(c.Before, mark) {
		add("%s begins with a byte order mark (BOM). It stays.", c.File)
	}
	switch crlf := bytes.Count(c.Before, windows); {
	case crlf == 0:
	case crlf == bytes.Count(c.Before, windows[1:]):
		add("%s has Windows line ends (CRLF). They stay.", c.File)
	default:
		add("%s has Windows line ends (CRLF) in some lines.", c.File)
	}
	if c.Project == "" {
		if info, err := os.Lstat(c.File); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if real, err := filepath.EvalSymlinks(c.File); err == nil {
				add("%s is a link to %s. That file is changed, and the link stays.", c.File, real)
			}
		}
	}
	info, err := os.Stat(c.File)
	if err != nil {
		return out
	}
	if mode := info.Mode().Perm(); mode&0o200 == 0 {
		add("%s is read-only (mode %04o). It is replaced, and stays read-only.", c.File, mode)
	}
	names, owner, known := inode(info)
	switch {
	case names > 1:
		add("%s has %d names (hard links). Only this one is changed: the others keep what is there now.", c.File, names)
	}
	switch user := os.Geteuid(); {
	case !known || owner == user:
	case user == 0:
		add("%s belongs to another user (number %d), and still does afterwards.", c.File, owner)
	default:
		add("%s belongs to another user (number %d), and is yours afterwards.", c.File, owner)
	}
	return out
}

// plainLines returns the content as a diff shows it: without the marks that Notes
// reports.
func plainLines(content []byte) []byte {
	return bytes.ReplaceAll(bytes.TrimPrefix(content, mark), windows, windows[1:])
}
