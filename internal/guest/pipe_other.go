//go:build !linux

package guest

import (
	"io"
	"syscall"
)

// Elsewhere the channel is an engine's connection, not a pipe of ours.

func enlarge(any) {}

func nonblocking(io.Writer) syscall.RawConn { return nil }

func writeSome(_ syscall.RawConn, parts [][]byte) ([][]byte, error) { return parts, nil }
