//go:build unix

package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// piped is a connection whose bytes go through one pipe for each direction, once both
// ends have greeted each other on the socket. Whoever reads from a socket wakes its
// writer, which has nothing to do then; a pipe does so only if it was full.
type piped struct {
	net.Conn // the socket
	in, out  *os.File
}

func (p *piped) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *piped) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p *piped) CloseWrite() error           { return p.out.Close() }

func (p *piped) Close() error { return errors.Join(p.Conn.Close(), closed(p.in), closed(p.out)) }

// closed closes a file, which may be closed already.
func closed(f *os.File) error {
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

func (p *piped) SetReadDeadline(t time.Time) error  { return p.in.SetReadDeadline(t) }
func (p *piped) SetWriteDeadline(t time.Time) error { return p.out.SetWriteDeadline(t) }

func (p *piped) SetDeadline(t time.Time) error {
	return errors.Join(p.in.SetReadDeadline(t), p.out.SetWriteDeadline(t))
}

// SyscallConn is that of the end that is written to.
func (p *piped) SyscallConn() (syscall.RawConn, error) { return p.out.SyscallConn() }

// offer makes two pipes, and sends a line with the other side's ends of them. It
// returns the connection that uses them.
func offer(conn net.Conn, line []byte) (_ net.Conn, err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("a connection of type %T passes no pipes", conn)
	}
	var ends [4]*os.File // each pipe's end to read and to write: to the hub, from the hub
	defer func() {
		for i, f := range ends {
			if f != nil && (err != nil || i == 0 || i == 3) {
				_ = f.Close()
			}
		}
	}()
	for i := 0; i < len(ends); i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	var rights []int
	for _, f := range []*os.File{ends[0], ends[3]} {
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, err
		}
		if err := raw.Control(func(fd uintptr) { rights = append(rights, int(fd)) }); err != nil {
			return nil, err
		}
	}
	n, _, err := socket.WriteMsgUnix(line, unix.UnixRights(rights...), nil)
	if err == nil && n < len(line) {
		_, err = socket.Write(line[n:])
	}
	if err != nil {
		return nil, err
	}
	return &piped{conn, ends[2], ends[1]}, nil
}

// A receiver reads from a socket, and keeps the descriptors that come with the bytes.
type receiver struct {
	socket *net.UnixConn
	files  []*os.File
}

// receive returns a reader of a connection that takes pipes.
func receive(conn net.Conn) (io.Reader, *receiver) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return conn, &receiver{}
	}
	r := &receiver{socket: socket}
	return r, r
}

func (r *receiver) Read(b []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(2*4))
	n, m, _, _, err := r.socket.ReadMsgUnix(b, control)
	messages, parseErr := unix.ParseSocketControlMessage(control[:m])
	if parseErr != nil {
		return n, parseErr
	}
	for _, message := range messages {
		fds, err := unix.ParseUnixRights(&message)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			_ = unix.SetNonblock(fd, true) // else a read could not be ended
			r.files = append(r.files, os.NewFile(uintptr(fd), "pipe"))
		}
	}
	if err == nil && n == 0 && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

// close closes what was received and is not used.
func (r *receiver) close() {
	for _, f := range r.files {
		_ = f.Close()
	}
	r.files = nil
}

// join returns the connection that uses the pipes that came.
func (r *receiver) join(conn net.Conn) (net.Conn, error) {
	if len(r.files) != 2 {
		return nil, fmt.Errorf("%d descriptors came in place of two pipes", len(r.files))
	}
	for _, f := range r.files {
		info, err := f.Stat()
		if err != nil || info.Mode().Type() != fs.ModeNamedPipe {
			return nil, errors.New("what came is not a pipe")
		}
	}
	p := &piped{conn, r.files[0], r.files[1]}
	r.files = nil
	return p, nil
}
