//go:build !linux || !(amd64 || arm64)

package process

import (
	"context"
	"errors"
	"runtime"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Engine stands in for the engine where it does not exist.
type Engine struct{}

// New returns a backend that can only say why it cannot run.
func New(Options) (*Engine, error) { return &Engine{}, nil }

// Main names no part of an engine here.
func Main([]string) (code int, ok bool) { return 0, false }

var errNotHere = errors.New("engine process runs on Linux on amd64 or arm64, and not on " + runtime.GOOS + "/" + runtime.GOARCH)

// Name implements sandbox.Engine.
func (*Engine) Name() string { return Name }

// Probe implements sandbox.Engine.
func (*Engine) Probe(context.Context) (*sandbox.Report, error) {
	return &sandbox.Report{Backend: Name, Findings: []sandbox.Finding{{
		Fatal: true, Title: errNotHere.Error(), Remedy: "run sallyport on Linux (a virtual machine, or WSL 2 on Windows)",
	}}}, nil
}

// Start implements sandbox.Engine.
func (*Engine) Start(context.Context, *sandbox.Spec) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: sandbox.ErrUnavailable, Err: errNotHere}
}

// Attach implements sandbox.Engine.
func (*Engine) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "attach", Backend: Name, Kind: sandbox.ErrGone}
}

// Close implements sandbox.Engine.
func (*Engine) Close() error { return nil }
