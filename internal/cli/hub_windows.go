package cli

import "syscall"

// detached is for systems with hubs.
func detached() *syscall.SysProcAttr { return nil }
