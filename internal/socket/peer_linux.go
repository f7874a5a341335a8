package socket

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Supported says whether sockets of this kind exist here.
const Supported = true

// samePeer says whether the other end of a connection is a process of this
// user.
func samePeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the peer is process %d of user %d", cred.Pid, cred.Uid)
	}
	return nil
}

func throughDirectory(dir, name string) (string, func(), error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join("/proc/self/fd", fmt.Sprint(d.Fd()), name), func() { _ = d.Close() }, nil
}
