package authz

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/sallyport/sallyport/internal/journal"
)

// unrecordedError is why an action is denied that cannot be recorded. Code and its
// agent read it, so that it says what kind of failure that is, and has no path: the
// log of the program has the rest.
type unrecordedError struct{ err error }

func (e *unrecordedError) Error() string {
	return "it cannot be recorded, which audit.mode: strict requires: " + causeOf(e.err)
}

func (e *unrecordedError) Unwrap() error { return e.err }

// causeOf returns what is known to be the cause of an error, in words that name no
// file.
func causeOf(err error) string {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number.Error()
	}
	for _, known := range []error{journal.ErrLost, journal.ErrClosed, context.Canceled, context.DeadlineExceeded, fs.ErrPermission, fs.ErrNotExist} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "the audit log cannot be written; Sallyport's own log says why"
}
