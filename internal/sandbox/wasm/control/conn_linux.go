package control

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// headerSize is the size of a message's length.
const headerSize = 4

// sendTime bounds Send. Only another side that has stopped reading reaches it.
const sendTime = 30 * time.Second

// A Conn is one end of the socket. Send may be called by several goroutines, each
// method that receives by one at a time.
type Conn struct {
	file *os.File
	send sync.Mutex
}

// Pair returns an end for this process, and the file that becomes the child's.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	ours, err := NewConn(fds[0])
	if err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	return ours, os.NewFile(uintptr(fds[1]), "control"), nil
}

// NewConn returns the end at a descriptor, which it takes over.
func NewConn(fd int) (*Conn, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil { // for the runtime's poller
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &Conn{file: os.NewFile(uintptr(fd), "control")}, nil
}

// Close closes the end.
func (c *Conn) Close() error { return c.file.Close() }

// ErrTooLarge is the error of a message that is not sent because it is too large.
var ErrTooLarge = errors.New("the message is too large")

// Send sends a value, and duplicates of files with it. After an error other than
// ErrTooLarge the connection is of no use any more.
func (c *Conn) Send(v any, files ...*os.File) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > MaxRequest {
		return fmt.Errorf("%w: %d bytes; at most %d", ErrTooLarge, len(body), MaxRequest)
	}
	data := make([]byte, headerSize, headerSize+len(body))
	binary.BigEndian.PutUint32(data, uint32(len(body)))
	data = append(data, body...)
	c.send.Lock()
	defer c.send.Unlock()
	if err := c.file.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	if len(files) > 0 {
		n, err := c.sendFiles(data, files)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	_, err = c.file.Write(data)
	return err
}

// sendFiles sends the beginning of a message with descriptors, and returns how much
// of it went.
func (c *Conn) sendFiles(data []byte, files []*os.File) (n int, err error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = withDescriptors(files, nil, func(fds []int) error {
		var sendErr error
		err := raw.Write(func(fd uintptr) bool {
			for {
				n, sendErr = unix.SendmsgN(int(fd), data, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
				if sendErr != unix.EINTR {
					return sendErr != unix.EAGAIN
				}
			}
		})
		return errors.Join(err, os.NewSyscallError("sendmsg", sendErr))
	})
	return n, err
}

// withDescriptors calls f with the descriptors of files, which stay open meanwhile.
// Not Fd, which would take files from the runtime's poller.
func withDescriptors(files []*os.File, fds []int, f func([]int) error) error {
	if len(files) == 0 {
		return f(fds)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = withDescriptors(files[1:], append(fds, int(fd)), f) })
	return errors.Join(err, inner)
}

// Message receives what the child says. Descriptors that come with it are dropped by
// the kernel.
func (c *Conn) Message() (m Message, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(c.file, header[:]); err != nil {
		return m, err
	}
	err = c.body(header, MaxMessage, &m)
	return m, err
}

// Request receives a request with its files, which become the caller's.
func (c *Conn) Request() (r Request, files []*os.File, err error) {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return r, nil, err
	}
	var header [headerSize]byte
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	var n, oobn int
	var recvErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), header[:], oob, unix.MSG_CMSG_CLOEXEC)
			if recvErr != unix.EINTR {
				return recvErr != unix.EAGAIN
			}
		}
	})
	if err = errors.Join(err, os.NewSyscallError("recvmsg", recvErr)); err != nil {
		return r, nil, err
	}
	if n == 0 {
		return r, nil, io.EOF
	}
	if files, err = received(oob[:oobn]); err == nil {
		if _, err = io.ReadFull(c.file, header[n:]); err == nil {
			err = c.body(header, MaxRequest, &r)
		}
	}
	if err != nil {
		CloseAll(files)
		return r, nil, err
	}
	return r, files, nil
}

// received returns the files of a control message.
func received(oob []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			CloseAll(files)
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// body reads the rest of a message.
func (c *Conn) body(header [headerSize]byte, limit uint32, v any) error {
	size := binary.BigEndian.Uint32(header[:])
	if size > limit {
		return fmt.Errorf("a message of %d bytes; at most %d", size, limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.file, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// CloseAll closes files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close() // a nil file refuses and does no harm
	}
}
