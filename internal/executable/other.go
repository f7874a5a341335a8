//go:build !linux

package executable

import "os/exec"

func mapped() (unmap func()) { return func() {} }

// Start starts a process of this program.
func Start(cmd *exec.Cmd) error { return cmd.Start() }
