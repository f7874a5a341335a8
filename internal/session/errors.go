package session

import "errors"

var (
	// ErrStop is the cause of a context that kills running code at once,
	// without an interrupt and a grace period.
	ErrStop = errors.New("stopped")
	// ErrClosed is returned by a session after Close.
	ErrClosed = errors.New("the session is closed")
	// ErrNoRoom reports that as many sessions as may run are in use.
	ErrNoRoom = errors.New("there is no room for one more session")
)

// errNoSuspend reports that a sandbox's state cannot be kept.
var errNoSuspend = errors.New("this engine, or a program without a state directory, cannot save a session")
