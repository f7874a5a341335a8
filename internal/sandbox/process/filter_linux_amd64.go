package process

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	otherABI  = 0x40000000 // x32's calls
)

// deniedHere are calls that exist only on this architecture.
var deniedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS__SYSCTL, unix.SYS_USELIB, unix.SYS_CREATE_MODULE}

// modeArgsHere are calls that exist only on this architecture: see modeArgs.
var modeArgsHere = map[uint32]uint32{unix.SYS_CHMOD: dataArg1, unix.SYS_OPEN: dataArg2, unix.SYS_CREAT: dataArg1, unix.SYS_MKNOD: dataArg1}
