//go:build unix && !linux

package fake

import "os/exec"

// inOwnRoot is for Linux only: elsewhere the run keeps the host's root.
func inOwnRoot(*exec.Cmd, string) {}
