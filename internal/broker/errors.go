package broker

import "github.com/sallyport/sallyport/internal/session"

// ErrStop is the cause to cancel a request's context with when no caller waits
// for its answer any more: its code is killed without the grace that a
// client's cancellation gives it.
var ErrStop = session.ErrStop
