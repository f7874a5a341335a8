package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// Delays before a stream is requested again, if the server does not set one.
const (
	firstDelay = time.Second
	maxDelay   = 30 * time.Second
	// leastDelay is the shortest delay that a server can set.
	leastDelay = 50 * time.Millisecond
	// maxResumptions bounds the consecutive resumptions that bring nothing new.
	maxResumptions = 5
)

// place is how far a stream has been read.
type place struct {
	last  string        // the identifier of the last event that had one
	delay time.Duration // the delay that the server wants before the next request
}

// events reads a stream until in has what it waits for, or the stream ends. It
// reports whether there was any event.
func (c *Streamable) events(ctx context.Context, body io.Reader, at *place, in inbox, enough func() bool) (some bool, err error) {
	room := &room{ctx: ctx, lease: budget.From(ctx)}
	defer room.close()
	reader := newEventReader(body, c.opts.MaxMessage)
	reader.fits = room.fits
	for {
		room.reset()
		e, err := reader.next()
		if err != nil {
			return some, err
		}
		if e.hasID {
			some = some || e.id != at.last
			at.last = e.id
		}
		if e.retry != noRetry {
			at.delay = max(e.retry, leastDelay)
		}
		switch {
		case e.overlong:
			c.overlong.Add(1)
			if take, ok := in.wanted(0, true); ok {
				take(reply{err: cmp.Or(reader.refused(), c.tooLarge())})
			}
		case len(e.data) > 0 && (e.name == "" || e.name == "message"):
			some = true
			c.receive(e.data, in)
		}
		if enough() {
			return some, nil
		}
		if ctx.Err() != nil {
			return some, context.Cause(ctx)
		}
	}
}

// follow reads the stream of a call, and resumes it if it breaks.
func (c *Streamable) follow(ctx context.Context, in one, response **http.Response, session string) (json.RawMessage, error) {
	at := place{delay: noRetry}
	idle := 0
	for {
		some, err := c.events(ctx, (*response).Body, &at, &in, func() bool { return in.got })
		if in.got {
			return in.reply.result, in.reply.err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err == io.EOF {
			err = errors.New("the server ended the stream")
		} else {
			err = clean(ctx, err, true)
		}
		if at.last == "" || c.speaks() >= standardHeaders {
			if errors.Is(err, ErrLost) {
				return nil, err
			}
			return nil, fmt.Errorf("%w: %w", ErrLost, err)
		}
		if some || c.asked.Waiting() { // a server that waits for us has nothing new
			idle = 0
		}
		_ = (*response).Body.Close()
		next, err := c.resume(ctx, &at, &idle, session)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("%w: its stream could not be resumed: %w", ErrLost, err)
		}
		*response = next
	}
}

// resume requests the rest of a stream, until it gets it or has tried too
// often.
func (c *Streamable) resume(ctx context.Context, at *place, idle *int, session string) (*http.Response, error) {
	var err error
	for *idle < maxResumptions {
		*idle++
		delay := at.delay
		if delay == noRetry {
			delay = min(firstDelay<<(*idle-1), maxDelay)
		}
		if !pause(ctx, delay) {
			return nil, context.Cause(ctx)
		}
		var response *http.Response
		if response, err = c.get(ctx, at.last, session); err == nil {
			return response, nil
		}
		if !isTransient(err) {
			return nil, err
		}
	}
	if err == nil {
		err = errors.New("it ended again and again without anything new")
	}
	return nil, err
}

// get requests a stream of events.
func (c *Streamable) get(ctx context.Context, last, session string) (*http.Response, error) {
	more := http.Header{}
	if session != "" {
		more.Set("Mcp-Session-Id", session)
	}
	if last != "" {
		more.Set("Last-Event-Id", last)
	}
	response, err := c.send(ctx, http.MethodGet, c.url, nil, onlyEvents, more)
	if err != nil {
		return nil, err
	}
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		err = c.statusError(response)
	case mediaType(response) != onlyEvents:
		err = fmt.Errorf("%w: its type is %.60q", jsonrpc.ErrMalformed, mediaType(response))
	default:
		return response, nil
	}
	_ = response.Body.Close()
	return nil, err
}

// nobody is the inbox of a stream on which no answer is expected.
type nobody struct{}

func (nobody) wanted(int64, bool) (func(reply), bool) { return nil, false }
func (nobody) call() context.Context                  { return context.Background() }

// stream reads the server's unsolicited messages until ctx ends or the server
// turns out not to offer them.
func (c *Streamable) stream(ctx context.Context) {
	lease := c.opts.Budget.Own.Lease()
	defer lease.Release()
	ctx = budget.With(ctx, lease)
	at := place{delay: noRetry}
	idle := 0
	for opened := false; ; {
		response, err := c.get(ctx, at.last, c.sessionID())
		if err == nil {
			if opened && at.last == "" && c.opts.OnGap != nil {
				c.opts.OnGap()
			}
			opened = true
			some, _ := c.events(ctx, response.Body, &at, nobody{}, func() bool { return false })
			_ = response.Body.Close()
			if some {
				idle = 0
			}
		} else if !isTransient(err) {
			c.opts.Log.Debug("the server offers no stream of its own", "err", c.hide(err.Error()))
			return
		}
		if ctx.Err() != nil {
			return
		}
		delay := at.delay
		if delay == noRetry || idle > 0 {
			delay = max(delay, min(firstDelay<<min(idle, 10), maxDelay))
		}
		idle++
		if !pause(ctx, delay) {
			return
		}
	}
}
