package container

import (
	"os/exec"
	"syscall"
)

const createNewProcessGroup = 0x200

// detach keeps a console's signals from a client: this program handles Ctrl-C.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: createNewProcessGroup, HideWindow: true}
}
