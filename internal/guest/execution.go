package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/sallyport/sallyport/internal/wire"
)

// A Handler serves one execution.
type Handler interface {
	// Output takes what the code wrote, in order per stream, from one
	// goroutine at a time and never after the execution's end. b is valid
	// during the call. It must not block, for the guest would stop at a full
	// pipe, and must not call Close.
	Output(s wire.Stream, b []byte)

	// Call answers a call, on a goroutine of its own. ctx ends with the
	// execution. The result must be one valid JSON value, which is not checked
	// again. An error that is a *wire.CallError reaches the code as it is; of
	// any other the code learns only that there was one.
	Call(ctx context.Context, call wire.Call) (json.RawMessage, error)
}

// Execution is one run of code in a guest.
type Execution struct {
	id      uint64
	nonce   string
	handler Handler
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{}
	behind  atomic.Int64 // calls that wait in the guest, as it says

	// Guarded by Conn.mu until ended is closed.
	done    *wire.Done
	drained bool
	result  wire.Done
	err     error
}

// Start sends code to the guest and returns at once. It sets e.ID and e.Nonce.
// The error is ErrBusy while another execution is under way, and the reason of
// the conversation's end after that.
func (c *Conn) Start(e wire.Exec, h Handler) (*Execution, error) {
	var nonce [16]byte
	_, _ = rand.Read(nonce[:]) // never fails
	x := &Execution{nonce: hex.EncodeToString(nonce[:]), handler: h, ended: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	if c.run != nil {
		c.mu.Unlock()
		return nil, ErrBusy
	}
	c.lastID++
	x.id = c.lastID
	x.ctx, x.cancel = context.WithCancel(context.Background())
	c.run = x
	c.mu.Unlock()

	e.ID, e.Nonce = x.id, x.nonce
	f, err := wire.EncodeExec(&e)
	if err != nil {
		c.mu.Lock()
		if c.run == x {
			c.run = nil
		}
		c.mu.Unlock()
		x.cancel()
		return nil, err
	}
	// Not behind unread replies: the execution's own limits have to
	// begin.
	if err := c.send.urge(f); err != nil {
		// The guest is gone or going: the readers find out how.
		c.log.Debug("send code to the guest", "error", err)
	}
	return x, nil
}

// ID is the execution's number, the Run of its calls.
func (x *Execution) ID() uint64 { return x.id }

// Done is closed when the execution has ended and all of its output has been
// handed over.
func (x *Execution) Done() <-chan struct{} { return x.ended }

// Result waits for the execution's end and returns how it ended: all of it is
// the guest's word. If the conversation ended first, the error is its error.
func (x *Execution) Result() (wire.Done, error) {
	<-x.ended
	return x.result, x.err
}

// EndCalls ends the execution's calls, which get no replies. Their requests hold
// memory that the guest's next frames may wait for.
func (x *Execution) EndCalls() { x.cancel() }

// finish ends the execution. It is called once, by whoever took it out of
// Conn.run.
func (x *Execution) finish(result wire.Done, err error) {
	x.result, x.err = result, err
	x.cancel()
	close(x.ended)
}

func (c *Conn) gotDone(d wire.Done) {
	c.mu.Lock()
	x := c.run
	if x == nil || x.id != d.ID || x.done != nil {
		c.mu.Unlock()
		c.log.Debug("a done frame for no execution", "id", d.ID)
		return
	}
	c.mu.Unlock()
	if d.Stdout != "" {
		c.output(wire.Stdout, []byte(d.Stdout))
		d.Stdout = ""
	}
	c.mu.Lock()
	x.done = &d
	x.drained = x.drained || d.Drained
	c.complete(x)
}

func (c *Conn) gotNonce(nonce []byte) {
	c.mu.Lock()
	x := c.run
	if x == nil || x.nonce != string(nonce) {
		c.mu.Unlock()
		return
	}
	x.drained = true
	c.complete(x)
}

// complete ends x if everything about it has arrived. It is called with mu held
// and releases it.
func (c *Conn) complete(x *Execution) {
	done := x.done
	whole := done != nil && x.drained && c.run == x
	if whole {
		c.run = nil
	}
	c.mu.Unlock()
	if whole {
		x.finish(*done, nil)
	} else if done != nil {
		x.cancel() // its calls are of no use any more
	}
}

// String is for logs.
func (x *Execution) String() string { return fmt.Sprintf("execution %d", x.id) }
