package host

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	otherABI  = 0
)

// allowedHere are calls that exist only on this architecture.
var allowedHere []uint32

// forbiddenHere end the process, too.
var forbiddenHere []uint32
