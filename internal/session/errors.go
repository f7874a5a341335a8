package session

import "errors"

var (
	// ErrStop is a context's cause that kills running code at once, without
	// an interrupt and its grace.
	ErrStop = errors.New("stopped")
	// ErrClosed is the answer of a session after Close.
	ErrClosed = errors.New("the session is closed")
)
