//go:build !linux || !(amd64 || arm64)

package process

import (
	"runtime"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Engine stands in for the engine where it does not exist.
type Engine struct{ sandbox.Unusable }

// New returns a backend that can only say why it cannot run.
func New(Options) (*Engine, error) {
	return &Engine{sandbox.Unusable{Backend: Name, Why: sandbox.Finding{
		Fatal:  true,
		Title:  "engine process runs on Linux on amd64 or arm64, and not on " + runtime.GOOS + "/" + runtime.GOARCH,
		Remedy: "run sallyport on Linux (a virtual machine, or WSL 2 on Windows)",
	}}}, nil
}

// Main names no part of an engine here.
func Main([]string) (code int, ok bool) { return 0, false }
