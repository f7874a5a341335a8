package upstream

import (
	"context"
	"errors"

	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// Class returns the error's ClassAndCause.
func (e *Error) Class() string { return ClassAndCause(e) }

// ClassAndCause returns what [Class] and [Cause] say.
func ClassAndCause(err error) string {
	if cause := Cause(err); cause != "" {
		return Class(err) + ": " + cause
	}
	return Class(err)
}

// Class describes in a few words what kind of failure an error of a server is.
// Sandboxed code may read it: nothing in it comes from the server, its
// definition or this machine.
func Class(err error) string {
	start := errors.Is(err, ErrStart)
	for _, kind := range []error{
		ErrUnknownServer, ErrDisabled, ErrOffered, ErrClosed, ErrInvalidArguments, ErrInputRequired, ErrNotOffered,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	var answered *jsonrpc.Error
	switch {
	case errors.Is(err, ErrUnauthorized):
		return "is not authorised"
	case errors.Is(err, remote.ErrRefused):
		return "has an address that may not be used"
	case errors.Is(err, remote.ErrUnreachable):
		return "cannot be reached"
	case errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		if start {
			return "did not start in time"
		}
		return "did not answer in time"
	case errors.Is(err, jsonrpc.ErrTooLarge):
		return "sent an answer that is too large"
	case errors.Is(err, ErrBadAnswer), errors.Is(err, jsonrpc.ErrNotJSON), errors.Is(err, jsonrpc.ErrMalformed):
		return "sent an answer that is not valid"
	case start:
		return "did not start"
	case errors.Is(err, ErrGone), errors.Is(err, remote.ErrLost), errors.Is(err, jsonrpc.ErrClosed):
		return "ended before it answered"
	case errors.As(err, &answered):
		return "answered with an error"
	}
	return "failed"
}
