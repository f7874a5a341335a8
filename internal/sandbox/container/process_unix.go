//go:build unix

package container

import (
	"os/exec"
	"syscall"
)

// detach keeps a terminal's signals from a client: Ctrl-C is ours to handle.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
