//go:build unix

package container

import (
	"os/exec"
	"syscall"
)

// detach keeps a terminal's signals from a client: this program handles Ctrl-C.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}
