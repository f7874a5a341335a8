// Package socket is how this user's processes reach each other: Unix sockets in a
// directory that belongs to the user. Both ends check who the other one is, by
// what the kernel says of the socket's peer.
package socket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/private"
)

// ErrUnsupported: there are no sockets of the kind that is needed here.
var ErrUnsupported = errors.New("this system cannot identify the peer of a socket")

// maxPath is how long the address of a socket may be everywhere.
const maxPath = 100

// dialTimeout bounds how long a connection may take to be made: its other end
// accepts at once, or has died.
const dialTimeout = time.Second

// address is where a socket is bound or found. The kernel takes short names
// only: through an open directory every name is short.
func address(dir, name string) (path string, done func(), err error) {
	path = filepath.Join(dir, name)
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	return throughDirectory(dir, name)
}

// A Listener accepts connections of this user's processes.
type Listener struct {
	*net.UnixListener
	log   *slog.Logger
	root  *os.Root // nil: the name belongs to a service manager
	name  string
	close sync.Once
}

// Listen listens at a name in dir, which is made if it is not there. A socket
// answers as soon as it has its name, and replaces what had it: it is the
// caller's matter that no process listened there.
func Listen(dir, name string, log *slog.Logger) (*Listener, error) {
	if !Supported {
		return nil, ErrUnsupported
	}
	root, err := private.Open(dir)
	if err != nil {
		return nil, err
	}
	early := "." + name
	_ = root.Remove(early) // of a process that died here
	path, done, err := address(dir, early)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	defer done()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	listener.SetUnlinkOnClose(false)
	if err = root.Chmod(early, 0o600); err == nil {
		err = root.Rename(early, name)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close(), root.Remove(early), root.Close())
	}
	return &Listener{UnixListener: listener, log: log, root: root, name: name}, nil
}

// Inherited is a Listener on a socket that a service manager has made, and
// which it keeps.
func Inherited(listener *net.UnixListener, log *slog.Logger) *Listener {
	listener.SetUnlinkOnClose(false)
	return &Listener{UnixListener: listener, log: log}
}

// Accept implements net.Listener. It returns connections of this user alone,
// each a *net.UnixConn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if err := samePeer(c); err != nil {
			l.log.Warn("a stranger on a socket was sent away", "reason", err)
			_ = c.Close()
			continue
		}
		return c, nil
	}
}

// Close implements net.Listener. It removes the socket's name. It is idempotent.
func (l *Listener) Close() (err error) {
	l.close.Do(func() {
		if l.root != nil {
			_ = l.root.Remove(l.name)
			_ = l.root.Close()
		}
		err = l.UnixListener.Close()
	})
	return err
}

// Dial connects to the process of this user that listens at a name in dir. The
// error is syscall.ECONNREFUSED or fs.ErrNotExist where there is none.
func Dial(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	if !Supported {
		return nil, ErrUnsupported
	}
	path, done, err := address(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	c := conn.(*net.UnixConn)
	if err := samePeer(c); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), c.Close())
	}
	return c, nil
}
