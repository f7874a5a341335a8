package execution

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/wire"
)

// A Client has a host run one request.
type Client struct {
	Conn net.Conn
	Log  io.Writer // gets the host's lines for the log
	// Asked, if not nil, is called when the code waits for an answer of a person, with
	// a line that says what for. Without it the log gets the line.
	Asked func(text string)
	// Patience is how long the host may take to end what is cancelled.
	Patience time.Duration
	// Lost says what is lost if the host ends without a result.
	Lost string
}

// Execute runs a request and returns its result, which is never nil. When ctx is
// done, the code is interrupted. Of the request it sends the code's text, arguments,
// files, servers, session, environment, folders and ID; principal, backend and the rest are the host's. It is
// called once.
func (c *Client) Execute(ctx context.Context, req broker.Request) *broker.Result {
	x := &client{Client: c, req: &req, from: wire.NewReader(c.Conn), to: &sender{to: c.Conn}}
	defer context.AfterFunc(ctx, func() { _ = c.Conn.SetDeadline(time.Now().Add(c.Patience)) })()
	_ = x.request() // an error shows in what comes back, too
	defer context.AfterFunc(ctx, func() { _ = x.to.send(kindCancel, nil) })()
	r, err := x.follow()
	if x.done != nil {
		_ = x.done(false)
	}
	if x.input != nil {
		close(x.input.wants)
	}
	if err == nil {
		return r
	}
	text := c.Lost
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		text = "Sallyport's hub does not answer. " + text
	case !ended(err):
		text += " (" + err.Error() + ")"
	}
	return &broker.Result{Status: broker.Failed, Summary: text, Error: text, Servers: req.Servers, Session: req.Session}
}

// ended reports whether an error says no more than that a connection has ended.
func ended(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// client is an execution in progress.
type client struct {
	*Client
	req  *broker.Request
	from *wire.Reader
	to   *sender

	input *input
	// The file that comes, the first error with it, and done of
	// Request.TakeFiles, nil without a file.
	content io.Writer
	failure error
	done    func(whole bool) error
}

// request sends the request.
func (x *client) request() error {
	r := x.req
	h := head{
		Code: len(r.Code), Filename: r.Filename, Script: r.Script, Args: r.Args, Servers: r.Servers, Session: r.Session, Env: r.Env, Mounts: r.Mounts,
		Timeout: int64(r.Timeout), Measure: r.Measure, Request: r.RequestID,
		Input: r.Stdin != nil, Output: r.OnOutput != nil, Status: r.OnStatus != nil, Take: r.TakeFiles != nil, Asks: x.Asked != nil,
	}
	pieces := [][]byte{nil, []byte(r.Code)}
	for _, f := range r.Files {
		h.Files = append(h.Files, file{f.Path, f.Mode, len(f.Data)})
		pieces = append(pieces, f.Data)
	}
	var err error
	if pieces[0], err = json.Marshal(h); err != nil {
		return err
	}
	return x.to.message(kindRequest, pieces...)
}

// follow does what the host asks until the result comes.
func (x *client) follow() (*broker.Result, error) {
	for {
		kind, payload, err := x.from.Output()
		if err != nil {
			return nil, err
		}
		switch kind {
		case wire.KindStdout:
			x.output(wire.Stdout, payload)
		case wire.KindStderr:
			x.output(wire.Stderr, payload)
		case kindStatus:
			if x.req.OnStatus != nil {
				x.req.OnStatus(string(payload))
			}
		case kindLog:
			_, _ = x.Log.Write(payload)
		case kindAsks:
			if x.Asked == nil {
				return nil, fmt.Errorf("%w: it asks", errFrame)
			}
			x.Asked(string(payload))
		case kindWant:
			err = x.read(payload)
		case kindFile:
			err = x.begin(string(payload))
		case kindData:
			x.data(payload)
		case kindWhole, kindDropped:
			err = x.end(kind == kindWhole)
		case kindResult:
			return x.result(payload)
		default:
			err = fmt.Errorf("%w: %q", errFrame, kind)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (x *client) output(s wire.Stream, data []byte) {
	if x.req.OnOutput != nil {
		x.req.OnOutput(s, data)
	}
}

// result reads the result, whose first frame has come.
func (x *client) result(first []byte) (*broker.Result, error) {
	var a answer
	rest, err := decode(&message{from: x.from, kind: kindResult, rest: first, over: len(first) == 0}, maxResult, &a)
	if err != nil {
		return nil, err
	}
	if err := end(rest); err != nil {
		return nil, err
	}
	if a.Result == nil {
		return nil, fmt.Errorf("%w: a result without a result", errFrame)
	}
	a.Result.Details, a.Result.OutOfMemory, a.Result.NotTaken = a.Details, a.OutOfMemory, a.NotTaken
	return a.Result, nil
}

// input reads standard input as the host asks.
type input struct {
	wants chan int
	err   error // of the last read
}

// read begins to read standard input, which may block for longer than the
// execution takes.
func (x *client) read(payload []byte) error {
	if len(payload) != 4 || x.req.Stdin == nil {
		return fmt.Errorf("%w: it asks for input", errFrame)
	}
	n := binary.BigEndian.Uint32(payload)
	if n == 0 || n > wire.MaxStdin {
		return fmt.Errorf("%w: it asks for %d bytes", errFrame, n)
	}
	if x.input == nil {
		x.input = &input{wants: make(chan int, 1)}
		go x.input.serve(x.req.Stdin, x.to)
	}
	select {
	case x.input.wants <- int(n):
		return nil
	default:
		return fmt.Errorf("%w: it asks for input again", errFrame)
	}
}

// serve answers the host, one read after the other.
func (i *input) serve(from io.Reader, to *sender) {
	buffer := make([]byte, wire.MaxStdin)
	for n := range i.wants {
		have := 0
		if i.err == nil {
			have, i.err = from.Read(buffer[:n])
		}
		var err error
		switch {
		case have > 0 || i.err == nil:
			err = to.send(kindInput, buffer[:have])
		case errors.Is(i.err, io.EOF):
			err = to.send(kindInputEnd, nil)
		default:
			err = to.text(kindInputEnd, failed(i.err))
		}
		if err != nil {
			return
		}
	}
}

// begin begins a file.
func (x *client) begin(path string) error {
	if x.req.TakeFiles == nil || x.done != nil {
		return fmt.Errorf("%w: a file", errFrame)
	}
	x.content, x.done, x.failure = nil, nil, nil
	content, done, err := x.req.TakeFiles(path)
	if err == nil {
		x.content, x.done = content, done
	}
	return x.taken(err)
}

// taken answers the host.
func (x *client) taken(err error) error {
	if err != nil {
		return x.to.text(kindTaken, failed(err))
	}
	return x.to.send(kindTaken, nil)
}

func (x *client) data(p []byte) {
	if x.done != nil && x.failure == nil {
		_, x.failure = x.content.Write(p)
	}
}

// end ends a file.
func (x *client) end(whole bool) error {
	if x.done == nil {
		return fmt.Errorf("%w: the end of no file", errFrame)
	}
	done := x.done
	x.done = nil
	err := done(whole && x.failure == nil)
	if !whole {
		return nil
	}
	if x.failure != nil {
		err = x.failure
	}
	return x.taken(err)
}
