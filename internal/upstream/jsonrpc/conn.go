package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/pipe"
	"github.com/sallyport/sallyport/internal/upstream/tail"
)

// Defaults of Options.
const (
	DefaultMaxLine  = 256 << 20
	DefaultMaxDepth = 500
	DefaultKeepJunk = 64 << 10
)

// lastAnswers is how long a peer that no longer reads may still write.
const lastAnswers = 500 * time.Millisecond

// queued is how many messages may wait for a peer that does not read.
const queued = 64

var (
	// ErrClosed reports that the connection has ended. It is wrapped together with the cause.
	ErrClosed = errors.New("connection closed")
	// ErrTooLarge reports that the answer was longer or deeper than allowed and
	// was discarded.
	ErrTooLarge = errors.New("answer exceeds the limit")
	// ErrMalformed reports that the answer was not a JSON-RPC response.
	ErrMalformed = errors.New("malformed answer")
	// ErrNotJSON reports that the answer was not JSON, though the call that it
	// answers is known.
	ErrNotJSON = errors.New("not valid JSON")
	// ErrInvalidParams reports that the parameters given to Call or Notify are
	// not JSON.
	ErrInvalidParams = errors.New("parameters are not valid JSON")
)

// Options of a connection. The zero value is usable.
type Options struct {
	Log *slog.Logger
	// MaxLine bounds a line in bytes, MaxDepth the nesting of a message.
	MaxLine, MaxDepth int
	// OnRequest answers the requests of the peer, except ping; nil answers "method
	// not found".
	OnRequest Handler
	// OnNotify receives the peer's notifications, except CancelMethod. It runs on
	// the reading goroutine and must not block. The bytes it gets are valid only
	// during the call.
	OnNotify func(method string, params json.RawMessage)
	// Redact removes secrets from a string. Errors show a part of an answer
	// that is not JSON only if Redact leaves it unchanged; nil removes nothing.
	Redact func(text string) string
	// Budget bounds the lines that are being read, and the files of those that
	// do not fit in memory; nil is the program's. SpoolDir is the directory of
	// these files; empty is the system's directory for temporary files.
	Budget   *budget.Host
	SpoolDir string
}

// Stats counts what a connection has seen.
type Stats struct {
	Calls         int64 // requests sent
	Requests      int64 // requests of the peer
	Notifications int64 // notifications of the peer
	Unknown       int64 // answers that belong to no pending call: late, repeated or made up
	Junk          int64 // lines that were not messages
	Overlong      int64 // lines discarded because of their length
	Dropped       int64 // answers and cancellations not sent because the peer does not read
}

// Conn is one connection. All methods are safe for concurrent use.
type Conn struct {
	opts  Options
	w     io.WriteCloser
	lines *lineReader
	junk  *tail.Buffer
	queue chan []byte
	asked *Requests

	sending sync.Mutex
	now     *pipe.Writer // nil where a write may block
	unsent  int          // messages in the queue, on their way to it, or being written

	nextID  atomic.Int64
	notes   atomic.Int64 // notifications sent
	mu      sync.Mutex
	pending map[int64]pending
	err     error // why done is closed

	done       chan struct{} // closed when the connection has failed or ended
	readerDone chan struct{}
	writerDone chan struct{}
	closeWrite sync.Once
	warned     bool  // about a line that is not JSON; the reader's
	held       int64 // memory of the line that is being handled; the reader's
	odd        odd

	calls, requests, notifications, unknown, junkLines, overlong, dropped atomic.Int64
}

// pending is a call that waits for its answer.
type pending struct {
	answer chan reply
	lease  *budget.Lease // of the calling sandbox; nil if there is none
	notes  int64         // notifications that were sent before it
}

// reply is an answer. If it is not in memory, it is the whole message.
type reply struct {
	result  json.RawMessage
	err     error
	spooled *spooled
}

// NewConn speaks over r and w until r ends. It closes w when the connection has
// ended. The caller closes r, which reliably ends the reading goroutine.
func NewConn(r io.Reader, w io.WriteCloser, opts Options) *Conn {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.MaxLine <= 0 {
		opts.MaxLine = DefaultMaxLine
	}
	if opts.MaxDepth <= 0 {
		opts.MaxDepth = DefaultMaxDepth
	}
	if opts.Budget == nil {
		opts.Budget = budget.Program()
	}
	lines := newLineReader(r, opts.MaxLine)
	lines.lines, lines.disk, lines.spoolDir = opts.Budget.Lines, opts.Budget.Spool, opts.SpoolDir
	c := &Conn{
		opts:       opts,
		w:          w,
		lines:      lines,
		junk:       tail.New(DefaultKeepJunk),
		queue:      make(chan []byte, queued),
		now:        pipe.NewWriter(w),
		pending:    make(map[int64]pending),
		done:       make(chan struct{}),
		readerDone: make(chan struct{}),
		writerDone: make(chan struct{}),
	}
	c.asked = NewRequests(opts.OnRequest, func(answer []byte) {
		if c.send(context.Background(), answer) != nil {
			c.dropped.Add(1)
		}
	})
	go c.read()
	go c.write()
	return c
}

// Call sends a request and waits for its answer, whose bytes the caller owns.
// They are charged to the lease of ctx. If it has no room, the call waits, but the
// connection does not.
//
// The error is an *Error if the peer answered with one. Otherwise it is ErrClosed,
// ErrTooLarge, ErrMalformed, ErrNotJSON, ErrInvalidParams or the context's cause.
// If the context ends first, Call sends the peer notifications/cancelled, except
// for initialize, which must not be cancelled.
func (c *Conn) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	id := c.nextID.Add(1)
	request, err := appendRequest(make([]byte, 0, len(method)+len(params)+64), id, method, params)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidParams, err)
	}
	answer := make(chan reply, 1)
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		return nil, err
	}
	c.pending[id] = pending{answer, budget.From(ctx), c.notes.Load()}
	c.mu.Unlock()

	switch err := c.send(ctx, request); {
	case err == nil:
		c.calls.Add(1)
	case errors.Is(err, ErrClosed):
		return c.ended(ctx, id, answer)
	default:
		c.forget(id)
		return nil, err
	}
	select {
	case r := <-answer:
		return c.open(ctx, id, r)
	case <-ctx.Done():
		if c.forget(id) && method != "initialize" {
			c.cancel(id, context.Cause(ctx))
		}
		return nil, context.Cause(ctx)
	case <-c.done:
		return c.ended(ctx, id, answer)
	}
}

// open returns the contents of an answer, which it may have to read from a
// file.
func (c *Conn) open(ctx context.Context, id int64, r reply) (json.RawMessage, error) {
	if r.spooled == nil {
		return r.result, r.err
	}
	defer r.spooled.Close()
	lease := budget.From(ctx)
	if lease == nil {
		lease = c.opts.Budget.Own.Lease()
		defer lease.Release()
	}
	data, err := r.spooled.load(ctx, lease)
	if err != nil {
		return nil, err
	}
	data = validUTF8(data)
	m, err := parseMessage(data)
	switch got, ok := callID(m.id); {
	case errors.Is(err, jsonscan.ErrNesting):
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return nil, fmt.Errorf("%w%s", ErrNotJSON, place(data, c.opts.Redact))
	case !ok || got != id || m.method != nil:
		return nil, ErrMalformed
	}
	r = c.decode(m, data)
	return r.result, r.err
}

// ended prefers an answer that arrived before the end.
func (c *Conn) ended(ctx context.Context, id int64, answer chan reply) (json.RawMessage, error) {
	c.forget(id)
	select {
	case r := <-answer:
		return c.open(ctx, id, r)
	default:
		return nil, c.Err()
	}
}

// Notify sends a notification. It waits only while the peer does not read.
func (c *Conn) Notify(ctx context.Context, method string, params json.RawMessage) error {
	note, err := appendRequest(nil, 0, method, params)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidParams, err)
	}
	select {
	case <-c.done:
		return c.Err()
	default:
	}
	c.notes.Add(1)
	return c.send(ctx, note)
}

// Done is closed when no further call can succeed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why Done is closed, or nil before. It wraps ErrClosed.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// CloseWrite ends the connection on our side: pending calls fail, and the peer
// sees the end of its input. The peer's remaining output is read, so that it
// does not block while it exits.
func (c *Conn) CloseWrite() {
	c.fail(errors.New("closed by us"))
}

// Wait waits until all goroutines have ended, which requires the peer's stream to
// end.
func (c *Conn) Wait() {
	<-c.readerDone
	<-c.writerDone
	c.asked.Wait()
}

// Drained is closed once everything that the peer wrote has been read.
func (c *Conn) Drained() <-chan struct{} { return c.readerDone }

// Junk returns the last of the lines that were not messages.
func (c *Conn) Junk() []byte { return c.junk.Bytes() }

// Stats returns the counters.
func (c *Conn) Stats() Stats {
	return Stats{
		Calls:         c.calls.Load(),
		Requests:      c.requests.Load(),
		Notifications: c.notifications.Load(),
		Unknown:       c.unknown.Load(),
		Junk:          c.junkLines.Load(),
		Overlong:      c.overlong.Load(),
		Dropped:       c.dropped.Load(),
	}
}

// fail ends the connection; the first reason stays.
func (c *Conn) fail(reason error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = fmt.Errorf("%w: %w", ErrClosed, reason)
		close(c.done)
		c.asked.End(c.err)
	}
	c.mu.Unlock()
	// Closing unblocks a write to a peer that does not read.
	c.closeWrite.Do(func() { _ = c.w.Close() })
}

// forget reports whether the call was still pending.
func (c *Conn) forget(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pending[id]
	delete(c.pending, id)
	return ok
}

func (c *Conn) read() {
	defer close(c.readerDone)
	for {
		l, err := c.lines.next()
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the other side closed its output: %w", err)
		}
		if err != nil {
			c.fail(err)
			return
		}
		if l.overlong || l.spooled != nil {
			c.notInMemory(l)
			continue
		}
		c.held = max(l.charged, l.length)
		c.handleLine(l)
		c.opts.Budget.Lines.Release(l.charged)
	}
}

func (c *Conn) handleLine(l line) {
	data := bytes.TrimSpace(l.data)
	data = jsonscan.TrimMark(data)
	if len(data) == 0 {
		return
	}
	// Peers do not use batches for large results: validating one again is cheap.
	if data[0] == '[' && c.odd.lines == nil && jsonscan.Valid(data) {
		_ = jsonscan.Elements(data, func(value json.RawMessage) bool {
			c.handleMessage(value, l.owned, false)
			return true
		})
		return
	}
	c.handleMessage(data, l.owned, l.unended)
}

func (c *Conn) handleMessage(data []byte, owned, unended bool) {
	raw := data
	if valid := validUTF8(data); len(valid) != len(data) || &valid[0] != &data[0] {
		data, owned = valid, true
	}
	m, err := parseMessage(data)
	switch {
	case c.odd.lines != nil && m.version == nil && m.method == nil && !(m.answers() && c.awaits(m.id)) && c.goesOn(data):
	case err != nil:
		c.unparsed(raw, data, err, unended)
	case m.method != nil:
		c.odd.lines = nil
		c.incoming(m)
	case m.id != nil || m.version != nil:
		c.odd.lines = nil
		c.answer(m, data, owned)
	default:
		c.keepJunk(data)
	}
}

func (c *Conn) keepJunk(data []byte) {
	c.junkLines.Add(1)
	_, _ = c.junk.Write(data)
	_, _ = c.junk.Write([]byte{'\n'})
}

// incoming handles a request or a notification of the peer.
func (c *Conn) incoming(m message) {
	var method string
	if json.Unmarshal(m.method, &method) != nil {
		c.keepJunk(m.method)
		return
	}
	if m.id == nil || jsonscan.Kind(m.id) == 'n' && strings.HasPrefix(method, "notifications/") {
		c.notifications.Add(1)
		if method == CancelMethod {
			c.asked.Cancel(m.params)
		} else if c.opts.OnNotify != nil {
			c.opts.OnNotify(method, m.params)
		}
		return
	}
	c.requests.Add(1)
	if answer := c.asked.Take(context.Background(), m.id, method, m.params); answer != nil {
		c.sendOrDrop(answer)
	}
}

// answer delivers an answer to the call that waits for it. data is the whole
// message.
func (c *Conn) answer(m message, data []byte, owned bool) {
	if m.result == nil && m.err == nil && m.version == nil {
		c.keepJunk(data) // a line of a log that has an id
		return
	}
	waiting, ok := c.waiting(m)
	if !ok {
		c.unexpected(m, data)
		return
	}
	c.noteForm(m)
	r := c.decode(m, data)
	size := c.held
	if r.err == nil && !owned {
		r.result = bytes.Clone(r.result)
		size = int64(len(r.result))
	}
	if r.err == nil && size > uncharged && !waiting.lease.TryAcquire(size) {
		r = c.putAside(m, waiting.lease)
	}
	waiting.answer <- r
}

// decode decodes the result or the error of an answer, whose bytes are data.
func (c *Conn) decode(m message, data []byte) reply {
	switch {
	case m.fails():
		return reply{err: decodeError(m.err)}
	case m.result == nil:
		return reply{err: fmt.Errorf("%w: it has no result and no error: %s", ErrMalformed, Shown(data, c.opts.Redact))}
	case m.depth > c.opts.MaxDepth:
		return reply{err: TooDeep(m.depth, c.opts.MaxDepth, m.result)}
	}
	return reply{result: m.result}
}

// putAside writes an answer to a file if its sandbox has no memory for it now.
func (c *Conn) putAside(m message, lease *budget.Lease) reply {
	size := int64(len(m.id) + len(m.result) + 32)
	if !lease.TryDisk(size) {
		return reply{err: errBacklog}
	}
	out, err := newSpool(c.opts.SpoolDir)
	if err != nil {
		return reply{err: fmt.Errorf("%w: there is no room for it: %w", ErrTooLarge, err)}
	}
	for _, part := range [][]byte{[]byte(`{"id":`), m.id, []byte(`,"result":`), m.result, []byte("}")} {
		if _, err := out.Write(part); err != nil {
			out.Close()
			return reply{err: fmt.Errorf("%w: there is no room for it: %w", ErrTooLarge, err)}
		}
	}
	return reply{spooled: out}
}

// errBacklog reports that too many results wait for their sandbox.
var errBacklog = fmt.Errorf("%w: the results of other calls, which the code has not taken yet, leave no room for it; make fewer large calls at a time", ErrTooLarge)
