package process

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	otherABI  = 0x40000000 // x32's calls
)

// deniedHere are calls that exist only on this architecture.
var deniedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS__SYSCTL, unix.SYS_USELIB, unix.SYS_CREATE_MODULE}
