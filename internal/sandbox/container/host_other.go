//go:build !linux

package container

// ceilings are unknown: containers run in a virtual machine.
func ceilings() (files, processes int) { return 0, 0 }

// hostKernel is unknown: containers run on another.
func hostKernel() (kernel, boot string) { return "", "" }
