// Package executable is the file of this program: the one that a process runs, and
// which build it is.
package executable

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"os"
)

// Own names, on Linux, the file that this process runs, even if an upgrade has
// replaced or removed it since: a helper of another version would not understand
// what it receives.
const Own = "/proc/self/exe"

// Path returns Own, or on other systems where the executable was.
func Path() (string, error) {
	if _, err := os.Stat(Own); err == nil {
		return Own, nil
	}
	return os.Executable()
}

// BuildID identifies the build of an ELF file by the linker's build ID, which covers
// all of its content.
func BuildID(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if s := f.Section(".note.go.buildid"); s != nil && s.Size < 4096 {
		if note, err := s.Data(); err == nil && len(note) > 16 {
			sum := sha256.Sum256(note)
			return hex.EncodeToString(sum[:]), nil
		}
	}
	return "", errors.New("the program has no build ID: build it without -ldflags=-buildid=")
}
