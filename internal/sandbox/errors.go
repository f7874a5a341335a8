package sandbox

import (
	"errors"
	"fmt"
)

// Kinds of failure that callers tell apart with errors.Is.
var (
	// ErrUnavailable reports that the engine cannot run on this host; the
	// message tells the user what to do.
	ErrUnavailable = errors.New("sandbox engine unavailable")
	// ErrUnsupported reports that the engine cannot do what was requested.
	ErrUnsupported = errors.New("not supported by this sandbox engine")
	// ErrInvalidSpec reports that the spec is malformed.
	ErrInvalidSpec = errors.New("invalid sandbox spec")
	// ErrGone reports that the run has ended or never existed.
	ErrGone = errors.New("sandbox is gone")
	// ErrStart reports that the sandbox did not start.
	ErrStart = errors.New("sandbox did not start")
	// ErrFolder reports that a folder of [Spec.Mounts] cannot be shown: it is gone,
	// for example. A snapshot of a sandbox with it is not harmed.
	ErrFolder = errors.New("a mounted folder cannot be shown")
	// ErrHeld reports that a snapshot cannot be taken, because code holds a file of a
	// mounted folder open that the host has removed or replaced.
	ErrHeld = errors.New("the code has a file of a mounted folder open that was removed or replaced on the host. It must close it first")
)

// Error is a failure of an engine.
type Error struct {
	Op      string // "start", "probe", "destroy"
	Backend string
	Kind    error // one of the Err values above, or nil
	Err     error // the cause; its message is for the user
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s: %v", e.Backend, e.Op, e.Kind)
	}
	return fmt.Sprintf("%s: %s: %v", e.Backend, e.Op, e.Err)
}

// Unwrap makes both the kind and the cause visible to errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}
