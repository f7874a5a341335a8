//go:build !linux

package pipe

import "io"

// Enlarge does nothing: elsewhere, pipes have one size.
func Enlarge(any) {}

// A Writer does not exist on this system.
type Writer struct{}

// NewWriter returns nil: writing may block.
func NewWriter(io.Writer) *Writer { return nil }

// Write writes nothing.
func (*Writer) Write(b []byte) (rest []byte, err error) { return b, nil }

// Polled returns r.
func Polled(r io.Reader) io.Reader { return r }
