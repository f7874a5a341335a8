//go:build unix

package cli

import "syscall"

// detached lets a process outlive the one that starts it, and its terminal.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
