package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// unread always returns false: no signal reports a closed pipe here.
func unread(*os.File) bool { return false }

// closedPipe reports whether a write failed because its reader is gone.
func closedPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
