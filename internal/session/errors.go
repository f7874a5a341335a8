package session

import "errors"

var (
	// ErrStop is a context's cause that kills running code at once, without
	// an interrupt and its grace.
	ErrStop = errors.New("stopped")
	// ErrClosed is the answer of a session after Close.
	ErrClosed = errors.New("the session is closed")
)

// errNoSleep: there is no place, or no way, to keep a sandbox's state.
var errNoSleep = errors.New("this engine, or a program without a state directory, cannot save a session")
