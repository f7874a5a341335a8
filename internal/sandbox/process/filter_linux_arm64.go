package process

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0
)

// deniedHere are calls that exist only on this architecture.
var deniedHere []uint32

// modeArgsHere are calls that exist only on this architecture: see modeArgs.
var modeArgsHere map[uint32]uint32
