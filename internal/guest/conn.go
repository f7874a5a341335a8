package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/pipe"
	"github.com/sallyport/sallyport/internal/wire"
)

// Options of a connection. The zero value is usable.
type Options struct {
	// Log is for what a person who debugs wants to know. Nil discards.
	Log *slog.Logger
	// IdleOutput takes output that arrives between executions, from the goroutine
	// that also calls Handler.Output. Nil discards. b is valid during the call.
	IdleOutput func(s wire.Stream, b []byte)
	// Restored is what a guest said when it was ready, for one that was
	// restored since: it does not say it again. Executions is how many it had
	// been given before.
	Restored   *wire.Ready
	Executions uint64
	// MaxCalls bounds the calls of one guest that a Handler answers at a time; more
	// are refused. Zero is 1,200: the guest program makes 1,000, and as many more as
	// it has threads.
	MaxCalls int
	// Patience is how long a large request waits for the memory of those before
	// it, and what is behind it with it: also the end of the execution. Zero is
	// 10 s.
	Patience time.Duration
	// Budget bounds the bytes of requests and of replies that the guest has not
	// read. Nil is a share of the program's budget. Conn closes it.
	Budget *budget.Sandbox
}

const (
	// reserve is charged before a call is answered whose result may be large
	// without anything of a server arriving for it.
	reserve = 32 << 20
	// copies is how often a request is in memory on its way to a server.
	copies = 2
)

// Conn is the host's side of the conversation with one guest. All methods are
// safe for concurrent use.
type Conn struct {
	opts           Options
	log            *slog.Logger
	send           *sender
	stdout, stderr io.ReadCloser
	tail           *tailReader

	budget  *budget.Sandbox
	work    work
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
		opts.MaxCalls = 1200
	}
	if opts.Patience == 0 {
		opts.Patience = 10 * time.Second
	}
	if opts.Budget == nil {
		opts.Budget = budget.Program().NewSandbox()
	}
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	pipe.Enlarge(stdin)
	pipe.Enlarge(stdout)
	pipe.Enlarge(stderr)
	c := &Conn{
		opts: opts, log: log, send: newSender(stdin), stdout: stdout, stderr: stderr,
		tail:         &tailReader{r: stderr},
		budget:       opts.Budget,
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
	return c.send.urge(wire.EncodeShutdown())
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
	c.budget.Close()
	c.send.close(err)
	_ = c.stdout.Close()
	_ = c.stderr.Close()
	if x != nil {
		c.delivering.Lock()
		x.finish(wire.Done{}, err)
		c.delivering.Unlock()
	}
	close(c.dead)
	c.log.Debug("the guest's conversation ended", "reason", err)
}

func (c *Conn) readControl() {
	defer close(c.controlEnded)
	r := wire.NewReader(c.stdout)
	var charged int64
	r.Admit = func(n int) error {
		ctx, cancel := context.WithTimeout(context.Background(), c.opts.Patience)
		defer cancel()
		charged = int64(n) * copies
		err := c.budget.Requests.Acquire(ctx, charged)
		if err != nil {
			charged = 0
		}
		return err
	}
	for {
		charged = 0
		b, err := r.Control(wire.MaxFromGuest)
		switch {
		case err == nil:
			began := time.Now()
			err = c.control(b, charged)
			c.work.add(len(b), began)
		case errors.Is(err, wire.ErrLeftOut):
			err = nil
			c.work.add(wire.MaxFromGuest, time.Time{})
			if id, ok := wire.CallID(b); ok {
				c.refuse(id, tooMuch)
			}
		default:
			c.budget.Requests.Release(charged)
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

// control handles a frame for which so much of the budget is charged.
func (c *Conn) control(b []byte, charged int64) error {
	m, err := wire.DecodeFromGuest(b)
	if err == nil && m.Call != nil {
		c.gotCall(*m.Call, charged)
		return nil
	}
	c.budget.Requests.Release(charged)
	if err != nil {
		return err
	}
	switch {
	case m.Ready != nil:
		return c.gotReady(*m.Ready)
	case m.Behind != nil:
		c.gotBehind(*m.Behind)
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
		c.work.add(len(b), time.Time{})
		switch kind {
		case wire.KindStdout:
			c.output(wire.Stdout, b)
		case wire.KindStderr:
			c.output(wire.Stderr, b)
		case wire.KindNonce:
			c.gotNonce(b)
		}
	}
}

func (c *Conn) output(s wire.Stream, b []byte) {
	c.delivering.Lock()
	defer c.delivering.Unlock()
	c.mu.Lock()
	x, over := c.run, c.err != nil
	c.mu.Unlock()
	switch {
	case over || len(b) == 0:
	case x != nil:
		x.handler.Output(s, b)
	case c.opts.IdleOutput != nil:
		c.opts.IdleOutput(s, b)
	}
}
