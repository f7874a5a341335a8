//go:build !linux && !darwin

package control

import (
	"net"
)

const supported = false

func samePeer(*net.UnixConn) error { return ErrUnsupported }

func throughDirectory(string, string) (string, func(), error) { return "", nil, ErrUnsupported }
