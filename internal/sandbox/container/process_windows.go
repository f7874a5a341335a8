package container

import (
	"os/exec"
	"syscall"
)

const createNewProcessGroup = 0x200

// detach keeps a console's signals from a client: Ctrl-C is ours to handle.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: createNewProcessGroup, HideWindow: true}
}
