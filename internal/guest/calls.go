package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/wire"
)

// tooMuch refuses a call whose request has no room.
var tooMuch = &wire.CallError{Kind: wire.KindLimit,
	Message: "the requests of other calls that are under way take up the memory there is for them; make fewer large calls at a time"}

// gotCall starts a call on a goroutine of its own.
func (c *Conn) gotCall(call wire.Call, charged int64) {
	if charged == 0 {
		charged = int64(len(call.Params)) * copies
		if !c.budget.Requests.TryAcquire(charged) {
			c.refuse(call.ID, tooMuch)
			return
		}
	}
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
		c.budget.Requests.Release(charged)
		c.refuse(call.ID, refusal)
		return
	}
	ctx, cancel := context.WithCancel(x.ctx)
	c.calls[call.ID] = cancel
	c.mu.Unlock()
	go c.answer(ctx, x, call, charged)
}

// refuse answers a call from the goroutine that reads. It never waits for room: a
// guest that floods calls and reads nothing gets no answers.
func (c *Conn) refuse(id uint64, refusal *wire.CallError) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.reply(ctx, id, nil, refusal, nil)
}

// answer has the handler answer a call, and sends what it says. Charged is what
// of the budget the request holds.
func (c *Conn) answer(ctx context.Context, x *Execution, call wire.Call, charged int64) {
	id := call.ID
	lease := c.budget.Lease()
	result, err := c.handle(budget.With(ctx, lease), x, call, lease)
	call = wire.Call{}
	// Before the reply: that may wait for the guest.
	c.budget.Requests.Release(charged)
	defer func() {
		c.mu.Lock()
		cancel := c.calls[id]
		delete(c.calls, id)
		c.mu.Unlock()
		cancel()
	}()
	if err == nil && ctx.Err() == nil {
		err = cover(ctx, lease, int64(len(result)))
	}
	if ctx.Err() != nil {
		lease.Release()
		return // no caller waits for it any more
	}
	if err := c.reply(ctx, id, result, err, lease.Release); err != nil && ctx.Err() == nil {
		c.log.Debug("reply to the guest", "call", id, "error", err)
	}
}

// cover sees to it that a result of n bytes is charged.
func cover(ctx context.Context, lease *budget.Lease, n int64) error {
	if lease.Held() >= n {
		if lease.Held() > 2*n {
			lease.Reduce(n)
		}
		return nil
	}
	if lease.TryAcquire(n - lease.Held()) {
		return nil
	}
	// Whoever waits holds nothing.
	lease.Reduce(0)
	err := lease.Acquire(ctx, n)
	if errors.Is(err, budget.ErrTooLarge) {
		return &wire.CallError{Kind: wire.KindLimit, Message: "the result is too large: " + err.Error()}
	}
	return err
}

// handle calls the handler.
func (c *Conn) handle(ctx context.Context, x *Execution, call wire.Call, lease *budget.Lease) (json.RawMessage, error) {
	if wire.Large(call.Method) {
		share, err := lease.Exclusive(ctx)
		if err != nil {
			return nil, err
		}
		defer share()
		if err := lease.Acquire(ctx, reserve); err != nil {
			return nil, err
		}
		before := budget.Allocated()
		defer func() { lease.Return(budget.Allocated() - before) }()
	}
	call.Behind = func() int { return int(x.behind.Load()) }
	return x.handler.Call(ctx, call)
}

func (c *Conn) gotBehind(m wire.Behind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.run; x != nil && x.id == m.Run {
		x.behind.Store(int64(m.Calls))
	}
}

func (c *Conn) gotCancel(m wire.Cancel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel, ok := c.calls[m.ID]; ok {
		cancel()
	}
}

// reply sends the outcome of a call. done is called when the guest has it, or
// never will.
func (c *Conn) reply(ctx context.Context, id uint64, result json.RawMessage, err error, done func()) error {
	if err == nil {
		f, err := wire.EncodeReply(id, result)
		if err == nil {
			return c.send.send(ctx, f, done)
		}
		return c.reply(ctx, id, nil, &wire.CallError{Kind: wire.KindLimit, Message: err.Error()}, done)
	}
	var ce *wire.CallError
	switch {
	case errors.As(err, &ce):
	case errors.Is(err, context.Canceled):
		ce = &wire.CallError{Kind: wire.KindCancelled, Message: "the call was cancelled"}
	case errors.Is(err, context.DeadlineExceeded):
		ce = &wire.CallError{Kind: wire.KindTimeout, Message: "the call took too long"}
	default:
		// The message may name things on the host.
		c.log.Error("a call failed inside the host", "call", id, "error", err)
		ce = &wire.CallError{Kind: wire.KindInternal, Message: "internal error of the host"}
	}
	f, err := wire.EncodeError(id, ce)
	if err != nil {
		if done != nil {
			done()
		}
		return err
	}
	return c.send.send(ctx, f, done)
}
