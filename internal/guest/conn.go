package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"sallyport/internal/wire"
)

// Stream is where output came from.
type Stream byte

// The streams of a guest.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Options of a connection. The zero value is usable.
type Options struct {
	// Log is for what a person who debugs wants to know. Nil discards.
	Log *slog.Logger
	// Stray takes output that arrives between executions, from the goroutine
	// that also calls Handler.Output. Nil discards. b is valid during the call.
	Stray func(s Stream, b []byte)
	// Restored is what a guest said when it was ready, for one that was
	// restored since: it does not say it again. Executions is how many it had
	// been given before.
	Restored   *wire.Ready
	Executions uint64
	// MaxCalls bounds the calls of one guest that are under way or wait for
	// their turn; more are refused. Zero is 1024.
	MaxCalls int
	// MaxParallel bounds those that a Handler answers at a time, and with them
	// the results that wait for a guest that does not read. Zero is 128.
	MaxParallel int
}

// maxLarge bounds the calls of one guest that are being answered and whose
// results may be large, the sending of these included.
const maxLarge = 16

// Conn is the host's side of the conversation with one guest. All methods are
// safe for concurrent use.
type Conn struct {
	opts           Options
	log            *slog.Logger
	send           *sender
	stdout, stderr io.ReadCloser
	tail           *tailReader

	turns   chan struct{} // holds a token for each call that is being answered
	large   chan struct{} // and for each of those whose result may be large
	readied chan struct{} // closed when ready has been received
	ready   wire.Ready

	controlEnded, outputEnded chan struct{}
	controlErr, outputErr     error // valid once theirs is closed

	// delivering is held while output is handed over, so that none is after
	// the end of an execution.
	delivering sync.Mutex

	mu     sync.Mutex
	run    *Execution // the one under way
	lastID uint64
	calls  map[uint64]context.CancelFunc // under way, by ID
	exit   *wire.Exit
	err    error
	dead   chan struct{}
}

// Open starts the conversation over the three streams of a guest, which Conn
// then owns. Closing a stream must end a blocked read or write on it, as it does
// for pipes and sockets.
func Open(stdin io.WriteCloser, stdout, stderr io.ReadCloser, opts Options) *Conn {
	if opts.MaxCalls == 0 {
		opts.MaxCalls = 1024
	}
	if opts.MaxParallel == 0 {
		opts.MaxParallel = 128
	}
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	enlarge(stdin)
	enlarge(stdout)
	enlarge(stderr)
	c := &Conn{
		opts: opts, log: log, send: newSender(stdin), stdout: stdout, stderr: stderr,
		tail:         &tailReader{r: stderr},
		turns:        make(chan struct{}, opts.MaxParallel),
		large:        make(chan struct{}, maxLarge),
		readied:      make(chan struct{}),
		controlEnded: make(chan struct{}),
		outputEnded:  make(chan struct{}),
		calls:        make(map[uint64]context.CancelFunc),
		dead:         make(chan struct{}),
	}
	c.lastID = opts.Executions
	if opts.Restored != nil {
		c.ready = *opts.Restored
		close(c.readied)
	}
	go c.readControl()
	go c.readOutput()
	go c.supervise()
	return c
}

// Ready waits until the guest has said that it is ready. Start need not wait
// for it.
func (c *Conn) Ready(ctx context.Context) (wire.Ready, error) {
	select {
	case <-c.readied:
		return c.ready, nil
	default:
	}
	select {
	case <-c.readied:
		return c.ready, nil
	case <-c.dead:
		return wire.Ready{}, c.Err()
	case <-ctx.Done():
		return wire.Ready{}, ctx.Err()
	}
}

// Executions is how many executions the guest has been given.
func (c *Conn) Executions() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastID
}

// Recount numbers the next execution as if there had been n. Nothing may be under
// way.
func (c *Conn) Recount(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID = n
}

// Dead is closed when the conversation is over, for whatever reason. No
// execution is under way then.
func (c *Conn) Dead() <-chan struct{} { return c.dead }

// Err says why the conversation is over: ErrClosed, a *Died, or an error with
// ErrProtocol in its chain. It is nil before that.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Shutdown asks the guest to end. It does not wait.
func (c *Conn) Shutdown() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // do not wait for room
	return c.send.send(ctx, wire.EncodeShutdown())
}

// Close ends the conversation and what is under way in it. It is idempotent.
func (c *Conn) Close() error {
	c.end(ErrClosed)
	return nil
}

// supervise waits for the end of both streams and then ends the conversation.
// Either stream may end first, and what the other still holds is wanted: the
// last output, the status, a done frame that was sent before the death. Only a
// breach of the protocol ends it at once.
func (c *Conn) supervise() {
	const grace = 2 * time.Second
	control, output := c.controlEnded, c.outputEnded
	var late <-chan time.Time
	for control != nil || output != nil {
		var err error
		select {
		case <-control:
			control, err = nil, c.controlErr
		case <-output:
			output, err = nil, c.outputErr
		case <-late:
			control, output = nil, nil
		case <-c.dead:
			return
		}
		if errors.Is(err, ErrProtocol) {
			c.end(err)
			return
		}
		if late == nil {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			late = timer.C
		}
	}
	c.mu.Lock()
	exit := c.exit
	c.mu.Unlock()
	d := &Died{}
	if exit != nil {
		d = died(*exit)
	}
	d.Diagnostics = c.tail.text()
	c.end(d)
}

// end is the one way in which a conversation ends.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	x := c.run
	c.run = nil
	c.mu.Unlock()

	// Closing first ends a blocked Output only if that waits for the guest;
	// Handler says that it must not block.
	c.send.close(err)
	_ = c.stdout.Close()
	_ = c.stderr.Close()
	if x != nil {
		c.delivering.Lock()
		x.finish(Outcome{}, err)
		c.delivering.Unlock()
	}
	close(c.dead)
	c.log.Debug("the guest's conversation ended", "reason", err)
}

func (c *Conn) readControl() {
	defer close(c.controlEnded)
	r := wire.NewReader(c.stdout)
	for {
		b, err := r.Control(wire.MaxFromGuest)
		if err == nil {
			err = c.control(b)
		}
		if err != nil {
			c.controlErr = protocolError(err)
			return
		}
	}
}

// protocolError tells a malformed frame from a stream that ended.
func protocolError(err error) error {
	if errors.Is(err, wire.ErrFrame) || errors.Is(err, ErrProtocol) {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

func (c *Conn) control(b []byte) error {
	m, err := wire.DecodeFromGuest(b)
	if err != nil {
		return err
	}
	switch {
	case m.Ready != nil:
		return c.gotReady(*m.Ready)
	case m.Call != nil:
		c.gotCall(*m.Call)
	case m.Cancel != nil:
		c.gotCancel(*m.Cancel)
	case m.Done != nil:
		c.gotDone(*m.Done)
	}
	return nil
}

func (c *Conn) gotReady(r wire.Ready) error {
	if r.Protocol != wire.Protocol {
		return fmt.Errorf("%w: protocol %d, where %d is spoken", wire.ErrFrame, r.Protocol, wire.Protocol)
	}
	select {
	case <-c.readied: // a forged repetition
	default:
		c.ready = r
		close(c.readied)
	}
	return nil
}

// readOutput hands output over until the stream ends. What follows the exit
// frame is of no interest.
func (c *Conn) readOutput() {
	r := wire.NewReader(c.tail)
	for first := true; ; first = false {
		kind, b, err := r.Output()
		if err == nil && kind == wire.KindExit {
			var e wire.Exit
			if e, err = wire.DecodeExit(b); err == nil {
				c.mu.Lock()
				c.exit = &e
				c.mu.Unlock()
				close(c.outputEnded)
				return
			}
		}
		if err != nil {
			fault := errors.Is(err, wire.ErrFrame)
			if fault && !first {
				c.outputErr = protocolError(err)
			}
			// No frame at all: the words of a program that did not start.
			if fault {
				c.tail.fault()
			}
			close(c.outputEnded)
			if fault {
				c.tail.rest()
			}
			return
		}
		switch kind {
		case wire.KindStdout:
			c.output(Stdout, b)
		case wire.KindStderr:
			c.output(Stderr, b)
		case wire.KindNonce:
			c.gotNonce(b)
		}
	}
}

func (c *Conn) output(s Stream, b []byte) {
	c.delivering.Lock()
	defer c.delivering.Unlock()
	c.mu.Lock()
	x, over := c.run, c.err != nil
	c.mu.Unlock()
	switch {
	case over || len(b) == 0:
	case x != nil:
		x.handler.Output(s, b)
	case c.opts.Stray != nil:
		c.opts.Stray(s, b)
	}
}

// gotCall starts a call on a goroutine of its own.
func (c *Conn) gotCall(call wire.Call) {
	c.mu.Lock()
	x := c.run
	var refusal *wire.CallError
	switch _, twice := c.calls[call.ID]; {
	case x == nil || x.id != call.Run || x.done != nil:
		refusal = &wire.CallError{Kind: wire.KindCancelled, Message: "the execution that made this call has ended"}
	case len(c.calls) >= c.opts.MaxCalls:
		refusal = &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("more than %d calls at a time", c.opts.MaxCalls)}
	case twice:
		refusal = &wire.CallError{Kind: wire.KindInvalid, Message: "a call of that number is under way"}
	}
	if refusal != nil {
		c.mu.Unlock()
		// This goroutine never waits for room: a guest that floods calls and
		// reads nothing gets no answers.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.reply(ctx, call.ID, nil, refusal)
		return
	}
	ctx, cancel := context.WithCancel(x.ctx)
	c.calls[call.ID] = cancel
	c.mu.Unlock()
	go c.answer(ctx, x, call)
}

// answer has the handler answer a call, and sends what it says.
func (c *Conn) answer(ctx context.Context, x *Execution, call wire.Call) {
	defer func() {
		c.mu.Lock()
		cancel := c.calls[call.ID]
		delete(c.calls, call.ID)
		c.mu.Unlock()
		cancel()
	}()
	if wire.Large(call.Method) {
		select {
		case c.large <- struct{}{}:
			defer func() { <-c.large }()
		case <-ctx.Done():
			return
		}
	}
	select {
	case c.turns <- struct{}{}:
	default:
		select {
		case c.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	defer func() { <-c.turns }()
	result, err := x.handler.Call(ctx, call)
	if ctx.Err() != nil {
		return // nobody waits for it any more
	}
	if err := c.reply(ctx, call.ID, result, err); err != nil && ctx.Err() == nil {
		c.log.Debug("reply to the guest", "call", call.ID, "error", err)
	}
}

func (c *Conn) gotCancel(m wire.Cancel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel, ok := c.calls[m.ID]; ok {
		cancel()
	}
}

// reply sends the outcome of a call.
func (c *Conn) reply(ctx context.Context, id uint64, result json.RawMessage, err error) error {
	if err == nil {
		f, err := wire.EncodeReply(id, result)
		if err == nil {
			return c.send.send(ctx, f)
		}
		return c.reply(ctx, id, nil, &wire.CallError{Kind: wire.KindLimit, Message: err.Error()})
	}
	var ce *wire.CallError
	switch {
	case errors.As(err, &ce):
	case errors.Is(err, context.Canceled):
		ce = &wire.CallError{Kind: wire.KindCancelled, Message: "the call was cancelled"}
	case errors.Is(err, context.DeadlineExceeded):
		ce = &wire.CallError{Kind: wire.KindTimeout, Message: "the call took too long"}
	default:
		// The text may name things of the host's.
		c.log.Error("a call failed inside the host", "call", id, "error", err)
		ce = &wire.CallError{Kind: wire.KindInternal, Message: "internal error of the host"}
	}
	f, err := wire.EncodeError(id, ce)
	if err != nil {
		return err
	}
	return c.send.send(ctx, f)
}
