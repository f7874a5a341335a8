//go:build !linux || !(amd64 || arm64)

package process

import (
	"context"
	"errors"
	"runtime"

	"sallyport/internal/sandbox"
)

// Backend stands in for the engine where it does not exist.
type Backend struct{}

// New returns a backend that can only say why it cannot run.
func New(Options) (*Backend, error) { return &Backend{}, nil }

// Main names no part of an engine here.
func Main([]string) (code int, ok bool) { return 0, false }

var errNotHere = errors.New("engine process runs on Linux on amd64 or arm64, and not on " + runtime.GOOS + "/" + runtime.GOARCH)

// Name implements sandbox.Backend.
func (*Backend) Name() string { return Name }

// Probe implements sandbox.Backend.
func (*Backend) Probe(context.Context) (*sandbox.Report, error) {
	return &sandbox.Report{Backend: Name, Findings: []sandbox.Finding{{
		Fatal: true, Title: errNotHere.Error(), Remedy: "run sallyport on Linux (a virtual machine, or WSL 2 on Windows)",
	}}}, nil
}

// Start implements sandbox.Backend.
func (*Backend) Start(context.Context, *sandbox.Spec) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: sandbox.ErrUnavailable, Err: errNotHere}
}

// Attach implements sandbox.Backend.
func (*Backend) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "attach", Backend: Name, Kind: sandbox.ErrGone}
}

// Close implements sandbox.Backend.
func (*Backend) Close() error { return nil }
