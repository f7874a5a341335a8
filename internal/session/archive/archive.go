// Package archive writes and reads exported sessions: tar files with the files
// of the workspace and the source of the code that ran.
package archive

import (
	"errors"
	"io/fs"
	"strings"
	"time"
	"unicode"
)

// Names in an archive.
const (
	// FactsFile is the first file of an archive, [Facts] as JSON.
	FactsFile = "session.json"
	// Workspace is the directory with the files of /workspace.
	Workspace = "workspace/"
	// Code is the directory with the source of the code that ran, one file per
	// execution.
	Code = "code/"
	// LeftOutFile is the last file. It lists the missing files, one on each
	// line.
	LeftOutFile = "left-out.txt"
)

// format is the version of archives.
const format = 1

const (
	// maxFiles bounds the number of files of a workspace, and maxPath the length
	// of their names.
	maxFiles = 20000
	maxPath  = 1000
	// maxListed bounds how many missing files are listed.
	maxListed = 100
	// maxFacts bounds the size of FactsFile.
	maxFacts = 64 << 10
)

// ErrInvalid reports that a file is not an exported session, or is damaged.
var ErrInvalid = errors.New("not an exported session")

// Facts describe the session of an archive.
type Facts struct {
	Format     int       `json:"format"`
	Name       string    `json:"name"`
	Created    time.Time `json:"created"`
	Exported   time.Time `json:"exported"`
	Executions uint64    `json:"executions"`
}

// validPath reports whether a path can name a file of a workspace on any
// system: relative, clean and of printable characters.
func validPath(path string) bool {
	return fs.ValidPath(path) && path != "." && len(path) <= maxPath &&
		!strings.ContainsFunc(path, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) })
}
