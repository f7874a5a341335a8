//go:build unix

package pipe

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often Deserted looks.
const lookEvery = 100 * time.Millisecond

// Deserted waits until no one can read any more what is written to w, a pipe or a
// socket, and reports true; or until ctx is done. It writes nothing. For another kind
// of writer it waits for ctx.
func Deserted(ctx context.Context, w any) bool {
	of, ok := w.(syscall.Conn)
	var conn syscall.RawConn
	if ok {
		var err error
		conn, err = of.SyscallConn()
		ok = err == nil
	}
	if !ok {
		<-ctx.Done()
		return false
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		gone := false
		err := conn.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(poll, 0)
			gone = err == nil && n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		})
		if gone || err != nil { // it was closed here
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
