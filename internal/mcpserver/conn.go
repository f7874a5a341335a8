package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

const (
	// maxInFlight bounds the requests of one client that are being answered.
	maxInFlight = 256
	// codeBusy is the error code for further requests. It is one of those that
	// JSON-RPC leaves to servers.
	codeBusy = -32000
	// firstWithoutBatches is the first protocol revision without batches.
	firstWithoutBatches = "2025-06-18"
)

// errCancelledByClient is the cause of a context that notifications/cancelled
// ended.
var errCancelledByClient = errors.New("cancelled by the client")

// conn is one client's connection. It is the SDK's transport and connection.
// What it reads goes to the SDK or to the fast path, and what either writes
// goes out through it, one message at a time.
type conn struct {
	server *Server
	log    *slog.Logger
	in     *lineReader
	stop   context.Context // done: running code is to be stopped
	cancel context.CancelCauseFunc
	input  context.Context // done: the client answers no more questions

	inputEnds context.CancelFunc

	toSDK  chan sdkrpc.Message
	probes discovery
	eof    chan struct{} // closed: the SDK reads the end of the stream
	hang   sync.Once
	closed chan struct{} // closed by the SDK
	shut   sync.Once
	fast   sync.WaitGroup
	unread *outlet

	outputs outputs
	roots   roots
	sdk     *mcp.ServerSession // set before anything is read

	writing chan struct{} // holds a token while one goroutine writes, and may use out and outErr
	out     io.Writer
	outErr  error

	mu       sync.Mutex
	inFlight map[sdkrpc.ID]*request
	running  int           // how many of those the end of input waits for
	idle     chan struct{} // closed when running becomes 0; nil: nothing waits
	// finishing means that Serve is about to return, and that fast must not grow.
	finishing bool
	protocol  string // negotiated by initialize; empty: not yet
	requests  int64  // that the client was asked, see ask
	asked     map[int64]chan<- *sdkrpc.Response
	taken     map[string]bool    // questions that the client was asked
	parked    map[string]*parked // calls that are to be repeated, by their state
	modern    string             // metadata that the SDK accepted, see modernKey; empty after initialize
	// modernTakes is what the client can be asked, by what modern says.
	modernTakes inquiry.Takes
	client      string // the client's name for itself, see label
	apps        bool   // the client shows pages, see takesApps
}

// request is a request that has not been answered.
type request struct {
	cancel     context.CancelCauseFunc // for a request on the fast path
	cancelled  bool                    // its answer is no longer wanted
	awaited    bool                    // the end of input waits for it
	initialize bool
	client     string // of initialize
	apps       bool   // of initialize
	modern     string
	batch      *batch
	raw        json.RawMessage // its id, as the client wrote it
}

func newConn(s *Server, in io.Reader, out io.Writer, stop context.Context, cancel context.CancelCauseFunc) *conn {
	c := &conn{
		server: s, log: s.config.Logger,
		in: newLineReader(in, s.config.MaxLine), out: out,
		stop: stop, cancel: cancel, unread: newOutlet(), writing: make(chan struct{}, 1),
		toSDK: make(chan sdkrpc.Message), eof: make(chan struct{}), closed: make(chan struct{}),
		inFlight: map[sdkrpc.ID]*request{},
	}
	c.input, c.inputEnds = context.WithCancel(stop)
	c.roots.listing = make(chan struct{}, 1)
	c.probes = discovery{c, make(chan sdkrpc.Message)}
	return c
}

// Connect implements mcp.Transport.
func (c *conn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements mcp.Connection.
func (c *conn) SessionID() string { return "" }

// Read implements mcp.Connection.
func (c *conn) Read(ctx context.Context) (sdkrpc.Message, error) { return c.next(ctx, c.toSDK) }

// next returns the next message for one of the SDK's sessions.
func (c *conn) next(ctx context.Context, messages <-chan sdkrpc.Message) (sdkrpc.Message, error) {
	select {
	case m := <-messages:
		return m, nil
	case <-c.eof:
	case <-c.closed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, io.EOF
}

// Close implements mcp.Connection.
func (c *conn) Close() error {
	c.shut.Do(func() { close(c.closed) })
	return nil
}

// hangUp lets the SDK read the end of the stream.
func (c *conn) hangUp() { c.hang.Do(func() { close(c.eof) }) }

// finish waits until ctx is done for the requests on the fast path, whose code
// has been stopped.
func (c *conn) finish(ctx context.Context) {
	c.mu.Lock()
	c.finishing = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() { c.fast.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		c.log.Warn("requests did not end in time")
	}
}

// readLoop reads until the client closes its end, then lets running requests finish,
// so that `echo … | sallyport serve` gets its answer.
func (c *conn) readLoop() {
	defer c.hangUp()
	defer c.cancel(broker.ErrStop)
	for {
		line, err := c.in.next()
		switch {
		case err == nil:
			c.line(line)
		case errors.Is(err, errLineTooLong):
			c.writeError(nil, sdkrpc.CodeParseError, fmt.Sprintf("parse error: a message is longer than %d bytes", c.server.config.MaxLine))
		default:
			if !errors.Is(err, io.EOF) {
				c.log.Warn("reading from the client failed", "error", err)
			}
			c.inputEnds()
			c.drain()
			return
		}
		select {
		case <-c.stop.Done():
			return
		default:
		}
	}
}

// line handles one line of input, and may keep it.
func (c *conn) line(line []byte) {
	defer func() {
		if defect := recover(); defect != nil {
			err := c.server.defect(defect)
			c.writeError(nil, err.Code, err.Message)
		}
	}()
	line = bytes.TrimSpace(jsonscan.TrimMark(line))
	if len(line) == 0 {
		return
	}
	if line[0] == '{' && !c.server.config.SDKOnly {
		if call, ok := parseFast(line); ok && c.startFast(call) {
			return
		}
	}
	if !jsonscan.Valid(line) {
		c.writeError(nil, sdkrpc.CodeParseError, "parse error")
		return
	}
	if line[0] == '[' {
		c.batch(line)
		return
	}
	msg, err := sdkrpc.DecodeMessage(line)
	if err != nil {
		id := idOf(line)
		if _, ok := requestID(id); !ok {
			id = nil
		}
		c.writeError(id, sdkrpc.CodeInvalidRequest, "invalid request: "+err.Error())
		return
	}
	c.forward(msg, idOf(line), nil)
}

// forward hands a message with an id to the SDK, unless it concerns a request of
// ours.
func (c *conn) forward(msg sdkrpc.Message, raw json.RawMessage, b *batch) {
	to := c.toSDK
	switch req := msg.(type) {
	case *sdkrpc.Response:
		if id, ok := requestID(bytes.Trim(raw, `"`)); ok { // some clients answer 7 as "7"
			req.ID = id
		}
		if c.answered(req) {
			return
		}
	case *sdkrpc.Request:
		switch {
		case req.IsCall():
			if id, ok := requestID(raw); ok {
				req.ID = id
			}
			if b == nil && c.listen(req, raw) {
				return
			}
			entry := &request{
				batch:      b,
				raw:        raw,
				awaited:    req.Method != "subscriptions/listen",
				initialize: req.Method == "initialize",
				modern:     modernKey(req.Params),
			}
			if entry.initialize {
				entry.client, entry.apps = initializedBy(req.Params), appsOf(req.Params)
			}
			if err := c.register(req.ID, entry); err != nil {
				c.refuse(entry, err)
				return
			}
			if req.Method == "server/discover" {
				to = c.probes.requests
			}
		case req.Method == "notifications/roots/list_changed":
			c.roots.changed() // before the calls that follow
			return
		case req.Method == "notifications/cancelled":
			if c.cancelRequest(req) {
				return
			}
		}
	}
	select {
	case to <- msg:
	case <-c.closed:
	case <-c.eof:
	}
}

// register records a request that needs an answer.
func (c *conn) register(id sdkrpc.ID, r *request) *sdkrpc.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := c.inFlight[id]; used {
		return &sdkrpc.Error{Code: sdkrpc.CodeInvalidRequest, Message: fmt.Sprintf("invalid request: request ID %v already in use", id.Raw())}
	}
	if len(c.inFlight) >= maxInFlight {
		return &sdkrpc.Error{Code: codeBusy, Message: fmt.Sprintf("more than %d requests are in flight", maxInFlight)}
	}
	c.inFlight[id] = r
	if r.awaited {
		c.running++
	}
	return nil
}

// guard answers a request of the fast path that a defect has ended. It is deferred.
func (c *conn) guard(id sdkrpc.ID) {
	if defect := recover(); defect != nil {
		c.respond(&sdkrpc.Response{ID: id, Error: c.server.defect(defect)})
	}
}

// answer sends the answer to a request, unless the client has cancelled it. If
// the request belongs to a batch, answer sends the batch once it is complete.
func (c *conn) answer(id sdkrpc.ID, data []byte) error {
	c.mu.Lock()
	r := c.inFlight[id]
	delete(c.inFlight, id) // the client may use the ID again once it has read
	if r != nil {
		if r.cancelled {
			data = nil
		}
		if r.batch != nil {
			data = r.batch.add(data)
		}
	}
	c.mu.Unlock()
	err := c.write(data)
	if r != nil && r.awaited {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running--; c.running == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
	}
	return err
}

// cancelRequest handles notifications/cancelled and reports whether the request
// was on the fast path. The SDK cancels its own requests; suppressing the
// answer happens here for both.
func (c *conn) cancelRequest(note *sdkrpc.Request) bool {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(note.Params, &p) != nil {
		return false
	}
	id, ok := requestID(p.RequestID)
	if !ok {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.inFlight[id]
	if r == nil || r.initialize {
		return false
	}
	r.cancelled = true
	if r.cancel == nil {
		if params, err := marshal(map[string]any{"requestId": id.Raw()}); err == nil {
			note.Params = params
		}
		return false
	}
	r.cancel(errCancelledByClient)
	return true
}

// Write implements mcp.Connection. The SDK answers with it.
func (c *conn) Write(_ context.Context, msg sdkrpc.Message) error {
	data, err := c.encode(msg)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if resp, ok := msg.(*sdkrpc.Response); ok {
		c.learn(resp)
		return c.answer(resp.ID, data)
	}
	return c.write(data)
}

// learn notes what the SDK has accepted, which the fast path relies on.
func (c *conn) learn(resp *sdkrpc.Response) {
	if resp.Error != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.inFlight[resp.ID]
	before := c.client
	switch {
	case r == nil:
		return
	case r.initialize:
		var result struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if json.Unmarshal(resp.Result, &result) == nil {
			c.protocol, c.client, c.modern, c.apps = result.ProtocolVersion, r.client, "", r.apps
		}
	case r.modern != "" && r.modern != c.modern && c.protocol == "":
		c.modern, c.client, c.apps = r.modern, clientOf(r.modern), appsInKey(r.modern)
		c.modernTakes = takesInKey(r.modern)
	}
	if tell := c.server.config.Client; tell != nil && c.client != before {
		tell(c.client)
	}
}

// writeError answers with an error; a nil id is null.
func (c *conn) writeError(id json.RawMessage, code int64, message string) {
	if id == nil {
		id = json.RawMessage("null")
	}
	data, err := marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *sdkrpc.Error   `json:"error"`
	}{"2.0", id, &sdkrpc.Error{Code: code, Message: message}})
	if err == nil {
		_ = c.write(data)
	}
}

// write sends one message; nil sends nothing. If writing fails, the client has
// gone, and the connection ends.
func (c *conn) write(data []byte) error {
	if data == nil {
		return nil
	}
	defer c.unread.add(len(data))()
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	if c.outErr != nil {
		return c.outErr
	}
	if c.stop.Err() != nil {
		return nil // nothing waits for it: see broker.ErrStop
	}
	if _, err := c.out.Write(append(data, '\n')); err != nil {
		c.outErr = fmt.Errorf("writing to the client: %w", err)
		c.cancel(broker.ErrStop)
		c.hangUp()
	}
	return c.outErr
}
