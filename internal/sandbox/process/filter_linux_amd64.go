package process

import "golang.org/x/sys/unix"

// deniedHere are calls that exist only on this architecture.
var deniedHere = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS__SYSCTL, unix.SYS_USELIB, unix.SYS_CREATE_MODULE}

// modeArgsHere are calls that exist only on this architecture: see modeArgs.
var modeArgsHere = map[uint32]uint32{unix.SYS_CHMOD: 1, unix.SYS_OPEN: 2, unix.SYS_CREAT: 1, unix.SYS_MKNOD: 1}
