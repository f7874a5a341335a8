// Package guesttest has the host's side of executions, for tests: it records
// output and answers calls.
package guesttest

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	"github.com/sallyport/sallyport/internal/wire"
)

// A Recorder collects what a guest writes. Make one with NewRecorder.
type Recorder struct {
	Arrived chan struct{} // receives after output has arrived

	mu       sync.Mutex
	out, err bytes.Buffer
}

// NewRecorder returns an empty Recorder.
func NewRecorder() *Recorder { return &Recorder{Arrived: make(chan struct{}, 1)} }

// Add records output.
func (r *Recorder) Add(s wire.Stream, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.out
	if s == wire.Stderr {
		w = &r.err
	}
	w.Write(b)
	select {
	case r.Arrived <- struct{}{}:
	default:
	}
}

// Stdout returns the standard output until now.
func (r *Recorder) Stdout() string { r.mu.Lock(); defer r.mu.Unlock(); return r.out.String() }

// Stderr returns the standard error until now.
func (r *Recorder) Stderr() string { r.mu.Lock(); defer r.mu.Unlock(); return r.err.String() }

// A Handler records output and answers calls.
type Handler struct {
	*Recorder
	Answer func(context.Context, wire.Call) (json.RawMessage, error) // nil: supports no calls
}

// NewHandler returns a Handler that whose Answer is call.
func NewHandler(call func(context.Context, wire.Call) (json.RawMessage, error)) *Handler {
	return &Handler{NewRecorder(), call}
}

// Output records output.
func (h *Handler) Output(s wire.Stream, b []byte) { h.Add(s, b) }

// Call answers a call.
func (h *Handler) Call(ctx context.Context, c wire.Call) (json.RawMessage, error) {
	if h.Answer == nil {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no " + c.Method}
	}
	return h.Answer(ctx, c)
}
