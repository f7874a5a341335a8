//go:build unix && !linux

package fake

import (
	"os/exec"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// inOwnRoot is for Linux only: elsewhere the run keeps the host's root.
func inOwnRoot(*exec.Cmd, string, []sandbox.Mount) {}
