//go:build !linux || !(amd64 || arm64)

package wasm

import (
	"context"
	"errors"
	"runtime"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Engine stands in for the engine where it does not exist.
type Engine struct{}

var _ sandbox.Engine = (*Engine)(nil)

// New returns an engine that can only say why it cannot run.
func New(Options) (*Engine, error) { return &Engine{}, nil }

var errNotHere = errors.New("engine wasm runs on Linux on amd64 or arm64, and not yet on " + runtime.GOOS + "/" + runtime.GOARCH)

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
