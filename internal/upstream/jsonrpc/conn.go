package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/internal/budget"
	"sallyport/internal/upstream/tail"
)

// Defaults of Options.
const (
	DefaultMaxLine  = 256 << 20
	DefaultMaxDepth = 500
	DefaultKeepJunk = 64 << 10
)

// lastAnswers is how long a peer that reads no more may still write.
const lastAnswers = 500 * time.Millisecond

// queued is how many messages may wait for a peer that does not read.
const queued = 64

var (
	// ErrClosed: the connection has ended; what ended it is wrapped too.
	ErrClosed = errors.New("connection closed")
	// ErrTooLarge: the answer was longer or deeper than allowed and was
	// thrown away.
	ErrTooLarge = errors.New("answer exceeds the limit")
	// ErrMalformed: the answer was no JSON-RPC response.
	ErrMalformed = errors.New("malformed answer")
	// ErrNotJSON: the answer was no JSON, though it could be told which call
	// it was for.
	ErrNotJSON = errors.New("not valid JSON")
	// ErrInvalidParams: the parameters given to Call or Notify are no JSON.
	ErrInvalidParams = errors.New("parameters are not valid JSON")
)

// Options of a connection. The zero value is usable.
type Options struct {
	Log *slog.Logger
	// MaxLine bounds a line in bytes, MaxDepth the nesting of a message.
	MaxLine, MaxDepth int
	// OnRequest answers a request of the peer. It runs on the reading
	// goroutine and must not block; nil answers "method not found". The
	// bytes it gets are valid during the call only.
	OnRequest func(method string, params json.RawMessage) (json.RawMessage, *Error)
	// OnNotify receives the peer's notifications, under the same conditions.
	OnNotify func(method string, params json.RawMessage)
	// Redact removes secrets from a text. Errors show a part of an answer that
	// is no JSON only where it has nothing to remove; nil removes nothing.
	Redact func(text string) string
	// Budget bounds the lines that are being read, and the files of those that
	// find no room in memory; nil is the program's. SpoolDir is where the files
	// are; empty is the system's directory for temporary files.
	Budget   *budget.Host
	SpoolDir string
}

// Stats counts what a connection has seen.
type Stats struct {
	Calls         int64 // requests sent
	Requests      int64 // requests of the peer
	Notifications int64 // notifications of the peer
	Unknown       int64 // answers that belong to no pending call: late, repeated or made up
	Junk          int64 // lines that were no message
	Overlong      int64 // lines thrown away for their length
	Dropped       int64 // answers and cancellations not sent because the peer does not read
}

// Conn is one connection. All methods are safe for concurrent use.
type Conn struct {
	opts  Options
	w     io.WriteCloser
	lines *lineReader
	junk  *tail.Buffer
	queue chan []byte

	nextID  atomic.Int64
	mu      sync.Mutex
	pending map[int64]pending
	err     error // why done is closed

	done       chan struct{} // closed when the connection has failed or ended
	readerDone chan struct{}
	writerDone chan struct{}
	closeWrite sync.Once
	warned     bool  // of a line that is no JSON; the reader's
	held       int64 // memory of the line that is being handled; the reader's

	calls, requests, notifications, unknown, junkLines, overlong, dropped atomic.Int64
}

// pending is a call that waits for its answer.
type pending struct {
	answer chan reply
	lease  *budget.Lease // of the sandbox that called; nil: none did
}

// reply is an answer. One that is not in memory is the whole message.
type reply struct {
	result  json.RawMessage
	err     error
	spooled *spooled
}

// NewConn speaks over r and w until r ends. It closes w when the connection
// has ended; r is the caller's to close, and closing it is what ends the
// reading goroutine for certain.
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
		pending:    make(map[int64]pending),
		done:       make(chan struct{}),
		readerDone: make(chan struct{}),
		writerDone: make(chan struct{}),
	}
	go c.read()
	go c.write()
	return c
}

// Call sends a request and waits for its answer, whose bytes are the caller's.
// They are charged to the lease of ctx. Where that has no room the call waits,
// and the connection does not.
//
// An error is *Error when the peer answered with one; it is ErrClosed,
// ErrTooLarge, ErrMalformed, ErrNotJSON, ErrInvalidParams or the context's cause
// otherwise. When the context ends first, the peer is told with
// notifications/cancelled, except for initialize, which must not be cancelled.
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
	c.pending[id] = pending{answer, budget.From(ctx)}
	c.mu.Unlock()

	select {
	case c.queue <- request:
		c.calls.Add(1)
	case <-ctx.Done():
		c.forget(id)
		return nil, context.Cause(ctx)
	case <-c.done:
		return c.ended(ctx, id, answer)
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

// open returns what an answer holds, which may have to be read from its file.
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
	case errors.Is(err, errNesting):
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return nil, fmt.Errorf("%w%s", ErrNotJSON, place(data, c.opts.Redact))
	case !ok || got != id || m.method != nil:
		return nil, ErrMalformed
	}
	r = c.decode(m)
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
	select {
	case c.queue <- note:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.done:
		return c.Err()
	}
}

// Done is closed when no further call can succeed.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why Done is closed, nil before. It wraps ErrClosed.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// CloseWrite ends the connection for us: pending calls fail, and the peer sees
// the end of its input. What the peer still writes is read, so that it does not
// block on its way out.
func (c *Conn) CloseWrite() {
	c.fail(errors.New("closed by us"))
}

// Wait returns when both goroutines have ended, which needs the end of the
// peer's stream.
func (c *Conn) Wait() {
	<-c.readerDone
	<-c.writerDone
}

// Drained is closed when all that the peer wrote has been read.
func (c *Conn) Drained() <-chan struct{} { return c.readerDone }

// Junk returns the last of the lines that were no messages.
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

func (c *Conn) cancel(id int64, cause error) {
	reason, err := json.Marshal(cause.Error())
	if err != nil {
		return
	}
	params := fmt.Appendf(nil, `{"requestId":%d,"reason":%s}`, id, reason)
	note, err := appendRequest(nil, 0, "notifications/cancelled", params)
	if err != nil {
		return
	}
	c.sendOrDrop(note)
}

// sendOrDrop queues a message nobody waits for. It never blocks: it is called
// by the reader, and a peer that asks and does not listen gets no answer.
func (c *Conn) sendOrDrop(message []byte) {
	select {
	case c.queue <- message:
	default:
		c.dropped.Add(1)
	}
}

func (c *Conn) write() {
	defer close(c.writerDone)
	var batch []byte
	for {
		var message []byte
		select {
		case message = <-c.queue:
		case <-c.done:
			return
		}
		// Whatever else is waiting goes out with the same system call.
		if len(c.queue) > 0 && len(message) < handOver {
			batch = append(batch[:0], message...)
			for more := true; more && len(batch) < handOver; {
				select {
				case message = <-c.queue:
					batch = append(batch, message...)
				default:
					more = false
				}
			}
			message = batch
		}
		_, err := c.w.Write(message)
		if cap(batch) > 4*handOver {
			batch = nil
		}
		if err != nil {
			// A peer that ends closes its input first or last; let what it
			// still said arrive.
			select {
			case <-c.readerDone:
			case <-time.After(lastAnswers):
			}
			c.fail(fmt.Errorf("write: %w", err))
			return
		}
	}
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

var byteOrderMark = []byte("\xef\xbb\xbf")

func (c *Conn) handleLine(l line) {
	data := bytes.TrimSpace(l.data)
	data = bytes.TrimPrefix(data, byteOrderMark)
	if len(data) == 0 {
		return
	}
	if data[0] == '[' {
		// A batch, which nobody uses for large results: validating it once
		// more as a whole is cheap.
		if !Valid(data) {
			c.keepJunk(data)
			return
		}
		_ = Elements(data, func(value json.RawMessage) bool {
			c.handleMessage(value, l.owned, false)
			return true
		})
		return
	}
	c.handleMessage(data, l.owned, l.unended)
}

func (c *Conn) handleMessage(data []byte, owned, unended bool) {
	if valid := validUTF8(data); len(valid) != len(data) || &valid[0] != &data[0] {
		data, owned = valid, true
	}
	m, err := parseMessage(data)
	switch {
	case err != nil:
		// A message cut off by the end of its sender is told by that end.
		if data[0] == '{' && !unended {
			c.notJSON(data, err)
		} else {
			c.keepJunk(data)
		}
	case m.method != nil:
		c.incoming(m)
	case m.id != nil && (m.result != nil || m.err != nil):
		c.answer(m, owned)
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
	if m.id == nil {
		c.notifications.Add(1)
		if c.opts.OnNotify != nil {
			c.opts.OnNotify(method, m.params)
		}
		return
	}
	c.requests.Add(1)
	if kind := Kind(m.id); len(m.id) > 1024 || kind == '{' || kind == '[' {
		c.opts.Log.Debug("request with an unusable id dropped", "method", clip(method, 128))
		return
	}
	var result json.RawMessage
	failure := &Error{Code: CodeMethodNotFound, Message: "Method not found: " + clip(method, 128)}
	if c.opts.OnRequest != nil {
		result, failure = c.opts.OnRequest(method, m.params)
	}
	answer, err := appendAnswer(nil, m.id, result, failure)
	if err != nil {
		c.opts.Log.Warn("answer to a server's request could not be encoded", "method", clip(method, 128), "err", err)
		return
	}
	c.sendOrDrop(answer)
}

// answer delivers an answer to the call that waits for it.
func (c *Conn) answer(m message, owned bool) {
	waiting, ok := c.waiting(m.id)
	if !ok {
		c.unknown.Add(1)
		if Kind(m.id) == 'n' && m.err != nil {
			c.opts.Log.Debug("server reports an error for no request", "err", decodeError(m.err).Error())
		}
		return
	}
	r := c.decode(m)
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

// decode reads the result or the error of an answer.
func (c *Conn) decode(m message) reply {
	switch {
	case m.err != nil && Kind(m.err) != 'n':
		return reply{err: decodeError(m.err)}
	case m.result == nil:
		return reply{err: ErrMalformed}
	case m.depth > c.opts.MaxDepth:
		return reply{err: fmt.Errorf("%w: nested %d levels deep, %d are allowed", ErrTooLarge, m.depth, c.opts.MaxDepth)}
	}
	return reply{result: m.result}
}

// putAside writes an answer for which its sandbox has no memory now into a file.
func (c *Conn) putAside(m message, lease *budget.Lease) reply {
	size := int64(len(m.id) + len(m.result) + 32)
	if !lease.TryDisk(size) {
		return reply{err: errBacklog}
	}
	out, err := newSpool(c.opts.SpoolDir)
	if err != nil {
		return reply{err: fmt.Errorf("%w: there is no room for it now: %w", ErrTooLarge, err)}
	}
	for _, part := range [][]byte{[]byte(`{"id":`), m.id, []byte(`,"result":`), m.result, []byte("}")} {
		if _, err := out.Write(part); err != nil {
			out.Close()
			return reply{err: fmt.Errorf("%w: there is no room for it now: %w", ErrTooLarge, err)}
		}
	}
	return reply{spooled: out}
}

// errBacklog: too many results wait for their sandbox.
var errBacklog = fmt.Errorf("%w: the results of other calls, which the code has not taken yet, leave no room for it; make fewer large calls at a time", ErrTooLarge)

// waiting removes and returns the call with this id.
func (c *Conn) waiting(rawID []byte) (pending, bool) {
	id, ok := callID(rawID)
	if !ok {
		return pending{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pending[id]
	delete(c.pending, id)
	return p, ok
}
