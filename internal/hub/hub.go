// Package hub connects the clients of a user with one process, their hub, that
// runs code for all of them.
//
// A hub listens on a socket of the user, under a name that depends on the program
// and its settings: processes that would run code in different ways do not meet. A
// Frontend is what a client has started. It connects to the hub, or starts it, and
// passes the lines of the Model Context Protocol on. When the hub has died, it
// answers the calls that were lost and connects to a new one.
//
// On a connection the frontend sends a line with a Hello, and two pipes with it. The
// hub answers with a line, and after that both send the protocol's lines through the
// pipes. Between them are lines of the hub for the frontend's log. A command that runs
// one program says so in its Hello; what follows is that of package execution.
package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/sallyport/sallyport/internal/socket"
	"github.com/sallyport/sallyport/internal/store"
)

const (
	// protocol is the version of what frontends and hubs say to each other.
	protocol = 2
	// maxHello bounds the first line of either side: an environment may be large.
	maxHello = 4 << 20
	// helloTimeout bounds how long it may take.
	helloTimeout = 10 * time.Second
	// lockRetry is how often a lock is tried.
	lockRetry = 5 * time.Millisecond
)

// Activated is the name of a socket on which a service manager starts a hub.
const Activated = "hub.sock"

// A Place is where one hub of a user is found.
type Place struct {
	Dir string // of the sockets: the user's alone
	Key string // names the hub: letters and digits
	Log *slog.Logger
}

func (p *Place) socket() string { return p.Key + ".sock" }

// lock takes the place's lock, which a process holds while it starts the hub, and
// the hub from the moment that it takes no more clients until its end.
func (p *Place) lock(ctx context.Context) (unlock func(), err error) {
	return p.wait(ctx, p.Key, func() bool { return false })
}

// wait waits for a lock, and returns none when enough reports that it is not
// needed.
func (p *Place) wait(ctx context.Context, name string, enough func() bool) (unlock func(), err error) {
	for {
		unlock, ok, err := store.At(p.Dir).TryLock(name)
		switch {
		case err != nil || ok:
			return unlock, err
		case enough():
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockRetry):
		}
	}
}

// A Hello is what a frontend says of itself and its client.
type Hello struct {
	Protocol int    `json:"protocol"`
	Key      string `json:"key"`
	// Client tells frontends apart. It stays the same over all connections of one.
	Client  string `json:"client"`
	Process int    `json:"process"`
	// Lost means that code which ran for the client was lost with another hub.
	Lost bool `json:"lost,omitempty"`
	// Run means that the client runs one program, and does not speak the Model
	// Context Protocol.
	Run bool `json:"run,omitempty"`
	// About is what the hub needs to know to serve the client.
	About json.RawMessage `json:"about"`
}

// welcome is the hub's answer.
type welcome struct {
	Process int    `json:"process"`
	Error   string `json:"error,omitempty"` // why the client cannot be served
	// Elsewhere means that this hub is one of other settings.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// errElsewhere: the hub on a service manager's socket has other settings.
var errElsewhere = errors.New("the hub has other settings")

// A Refused is the hub's reason not to serve a client.
type Refused struct{ Reason string }

func (r *Refused) Error() string { return r.Reason }

// A Conn is a connection to a hub that serves it.
type Conn struct {
	net.Conn
	Hub int           // the hub's process
	in  *bufio.Reader // from the hub; what follows its welcome
}

// Read reads what the hub says after its welcome.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// CloseWrite tells the hub that nothing more comes.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// dial connects to a hub that runs.
func (p *Place) dial(ctx context.Context, name string, h Hello) (*Conn, error) {
	conn, err := socket.Dial(ctx, p.Dir, name)
	if err != nil {
		return nil, err
	}
	c, err := greet(ctx, conn, h)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// greet sends the hello and reads the answer.
func greet(ctx context.Context, conn net.Conn, h Hello) (_ *Conn, err error) {
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := conn.SetDeadline(time.Now().Add(welcomeTimeout)); err != nil {
		return nil, err
	}
	h.Protocol = protocol
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	pipes, err := offer(conn, append(line, '\n'))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = pipes.Close()
		}
	}()
	line, err = readLine(bufio.NewReader(conn))
	if err != nil {
		return nil, err
	}
	var w welcome
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, fmt.Errorf("the hub's answer: %w", err)
	}
	switch {
	case w.Elsewhere:
		return nil, errElsewhere
	case w.Error != "":
		return nil, &Refused{w.Error}
	}
	return &Conn{Conn: pipes, Hub: w.Process, in: bufio.NewReaderSize(pipes, 64<<10)}, nil
}

// aside begins a line that is for the frontend's log, and not for the client. No
// line of the protocol begins so.
const aside = '#'

// WriteAside sends a line for the log of a client's frontend.
func WriteAside(conn io.Writer, line []byte) error {
	line = bytes.ReplaceAll(bytes.TrimRight(line, "\n"), []byte("\n"), []byte(" "))
	_, err := conn.Write(append(append([]byte{aside}, line...), '\n'))
	return err
}

// readLine reads one line of at most maxHello bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxHello:
			return nil, fmt.Errorf("a line of more than %d bytes", maxHello)
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}
