//go:build !linux && !darwin

package socket

import (
	"net"
)

// Supported says whether sockets of this kind exist here.
const Supported = false

func samePeer(*net.UnixConn) error { return ErrUnsupported }

func throughDirectory(string, string) (string, func(), error) { return "", nil, ErrUnsupported }
