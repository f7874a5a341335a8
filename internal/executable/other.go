//go:build !linux

package executable

import (
	"os/exec"
	"time"
)

func mapped() (unmap func()) { return func() {} }

// Start starts a process of this program. Linux alone knows a slack.
func Start(cmd *exec.Cmd, slack time.Duration) error { return cmd.Start() }
