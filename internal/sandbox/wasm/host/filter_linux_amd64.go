package host

import "golang.org/x/sys/unix"

// allowedHere are calls that exist only on this architecture.
var allowedHere = []uint32{unix.SYS_POLL, unix.SYS_EPOLL_WAIT, unix.SYS_TIME}

// forbiddenHere end the process, too.
var forbiddenHere = []uint32{unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_MODIFY_LDT}
