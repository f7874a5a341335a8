//go:build !linux || !(amd64 || arm64)

package gvisor

import (
	"context"
	"fmt"
	"runtime"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Engine stands in for the engine where it does not exist.
type Engine struct{ sandbox.Unusable }

// New returns a backend that can only say why it cannot run.
func New(Options) (*Engine, error) {
	return &Engine{sandbox.Unusable{Backend: Name, Why: sandbox.Finding{
		Fatal:  true,
		Title:  fmt.Sprintf("gVisor does not run on %s/%s", runtime.GOOS, runtime.GOARCH),
		Detail: "the embedded engine needs Linux on amd64 or arm64",
		Remedy: "run sallyport on Linux (a virtual machine, or WSL 2 on Windows)",
	}}}, nil
}

// Start implements sandbox.Engine. The error says what to do, too: this is the engine
// that most people start with.
func (e *Engine) Start(context.Context, *sandbox.Spec) (sandbox.Run, error) {
	return nil, &sandbox.Error{Op: "start", Backend: Name, Kind: sandbox.ErrUnavailable, Err: fmt.Errorf("%s: %s", e.Why.Title, e.Why.Remedy)}
}
