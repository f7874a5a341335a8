package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// unread is of no use: no signal tells of a closed pipe here.
func unread(*os.File) bool { return false }

// closedPipe says of a write's error that nobody reads what is written.
func closedPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
