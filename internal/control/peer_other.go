//go:build !linux && !darwin

package control

import (
	"net"
	"os"
)

const supported = false

func samePeer(*net.UnixConn) error { return ErrUnsupported }

func ours(os.FileInfo) bool { return false }

func throughDirectory(string, string) (string, func(), error) { return "", nil, ErrUnsupported }
