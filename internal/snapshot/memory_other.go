//go:build !linux

package snapshot

import (
	"errors"
	"os"
)

// memoryFile makes a file without a place on disk. No engine that takes
// snapshots runs here.
func memoryFile(string) (*os.File, error) {
	return nil, errors.New("packed snapshots cannot be read on this system")
}
