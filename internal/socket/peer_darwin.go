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
	var cred *unix.Xucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("the peer is a process of user %d", cred.Uid)
	}
	return nil
}

func throughDirectory(dir, name string) (string, func(), error) {
	return "", nil, fmt.Errorf("%s: too long for the address of a socket; set XDG_RUNTIME_DIR to a shorter directory", filepath.Join(dir, name))
}
