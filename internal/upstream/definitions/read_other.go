//go:build !unix

package definitions

import (
	"errors"
	"os"
)

func openFile(path string) (*os.File, error) { return os.Open(path) }

// errNotDir does not occur here.
var errNotDir = errors.New("not a directory")
