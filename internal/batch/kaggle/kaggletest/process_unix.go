//go:build unix

package kaggletest

import (
	"os/exec"
	"syscall"
)

// apart gives a session's processes a group of their own.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killAll ends all processes of a session.
func killAll(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
