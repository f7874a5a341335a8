package guest

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/sallyport/sallyport/internal/wire"
)

var (
	// ErrBusy: an execution is under way on this connection.
	ErrBusy = errors.New("the guest is busy with another execution")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("the connection to the guest is closed")
	// ErrProtocol is in the chain when the guest sent something malformed.
	ErrProtocol = errors.New("the guest broke the protocol")
)

// Died says that the guest is gone. Known is false when it did not say how: its
// sandbox was destroyed, or died as a whole.
type Died struct {
	Known       bool
	Code        int    // exit status of the interpreter, where no signal ended it
	Signal      int    // or the signal
	Diagnostics string // what arrived instead of frames, for people; bounded
}

func (d *Died) Error() string {
	var s string
	switch {
	case !d.Known:
		s = "the sandbox is gone"
	case d.Signal != 0:
		s = fmt.Sprintf("the interpreter was ended by signal %d (%v)", d.Signal, syscall.Signal(d.Signal))
	default:
		s = fmt.Sprintf("the interpreter ended with status %d", d.Code)
	}
	if d.Diagnostics != "" {
		s += ": " + d.Diagnostics
	}
	return s
}

func died(e wire.Exit) *Died {
	return &Died{Known: true, Code: e.Code, Signal: e.Signal}
}
