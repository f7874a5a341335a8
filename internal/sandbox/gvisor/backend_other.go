//go:build !linux || !(amd64 || arm64)

package gvisor

import (
	"context"
	"fmt"
	"runtime"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Engine stands in for the engine where it does not exist.
type Engine struct{}

// New returns a backend that can only say why it cannot run.
func New(Options) (*Engine, error) { return &Engine{}, nil }

func unavailable(op string) error {
	return &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrUnavailable, Err: fmt.Errorf("%s: %s", finding().Title, finding().Remedy)}
}

func finding() sandbox.Finding {
	return sandbox.Finding{
		Fatal:  true,
		Title:  fmt.Sprintf("gVisor does not run on %s/%s", runtime.GOOS, runtime.GOARCH),
		Detail: "the embedded engine needs Linux on amd64 or arm64",
		Remedy: "run sallyport on Linux (a virtual machine, or WSL 2 on Windows)",
	}
}

// Name implements sandbox.Engine.
func (*Engine) Name() string { return Name }

// Probe implements sandbox.Engine.
func (*Engine) Probe(context.Context) (*sandbox.Report, error) {
	return &sandbox.Report{Backend: Name, Findings: []sandbox.Finding{finding()}}, nil
}

// Start implements sandbox.Engine.
func (*Engine) Start(context.Context, *sandbox.Spec) (sandbox.Run, error) {
	return nil, unavailable("start")
}

// Attach implements sandbox.Engine.
func (*Engine) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "attach", Backend: Name, Kind: sandbox.ErrGone}
}

// Close implements sandbox.Engine.
func (*Engine) Close() error { return nil }
