package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

// Legacy is a connection over HTTP with server-sent events, as revision
// 2024-11-05 has it: requests are posted, and one stream brings all answers.
// Its methods are safe for concurrent use.
type Legacy struct {
	*peer
	endpoint *url.URL      // where messages go
	ready    chan struct{} // closed when endpoint is set, before the connection is handed out

	pendingMu sync.Mutex
	pending   map[int64]waiting
}

// waiting is a call that waits for its answer.
type waiting struct {
	answer chan reply
	lease  *budget.Lease
}

// DialLegacy opens the stream and waits until the server has announced its
// endpoint for messages. ctx bounds the wait.
func (n *Network) DialLegacy(ctx context.Context, target Target, opts Options) (*Legacy, error) {
	c := &Legacy{ready: make(chan struct{}), pending: map[int64]waiting{}}
	var err error
	if c.peer, err = newPeer(n, target, opts, c.answer); err != nil {
		return nil, err
	}
	if err := c.open(ctx); err != nil {
		_ = c.Stop(ctx)
		return nil, err
	}
	return c, nil
}

func (c *Legacy) open(ctx context.Context) error {
	request, detach, end := c.request(ctx)
	defer detach()
	response, err := c.send(request, http.MethodGet, c.url, nil, onlyEvents, nil)
	if err != nil {
		end(context.Canceled)
		return err
	}
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		err = c.statusError(response)
	case mediaType(response) != onlyEvents:
		err = fmt.Errorf("%w: its type is %.60q", jsonrpc.ErrMalformed, mediaType(response))
	}
	if err != nil {
		_ = response.Body.Close()
		end(context.Canceled)
		return err
	}
	endpoint := make(chan string, 1)
	c.begin(func() {
		defer end(context.Canceled)
		defer func() { _ = response.Body.Close() }()
		c.read(request, response.Body, endpoint)
	})
	select {
	case text := <-endpoint:
		to, err := c.url.Parse(text)
		switch {
		case err != nil:
			return fmt.Errorf("%w: its endpoint for messages is not a URL", jsonrpc.ErrMalformed)
		case origin(to) != origin(c.url):
			return refuse("the server's endpoint for messages is at another address, %s", origin(to))
		}
		to.User = nil
		c.endpoint = to
		close(c.ready)
		return nil
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read handles the stream until it ends, then ends the connection.
func (c *Legacy) read(ctx context.Context, body io.Reader, endpoint chan<- string) {
	reader := newEventReader(body, c.opts.MaxMessage)
	// All calls share the stream, so it never waits for memory.
	var charged int64
	reader.fits = func(n int) error {
		more := int64(n) - charged
		if n <= uncharged || more <= 0 {
			return nil
		}
		more = max(more, min(charged, fine))
		if !c.opts.Budget.Lines.TryAcquire(more) {
			return errNoRoom
		}
		charged += more
		return nil
	}
	defer func() { c.opts.Budget.Lines.Release(charged) }()
	for {
		c.opts.Budget.Lines.Release(charged)
		charged = 0
		e, err := reader.next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server ended the stream")
			} else {
				err = clean(ctx, err, true)
			}
			c.fail(err)
			return
		}
		switch {
		case e.overlong:
			c.overlong.Add(1)
			if id, ok := jsonrpc.AnsweredID(e.data); ok {
				if take, ok := c.wanted(id, false); ok {
					take(reply{err: cmp.Or(reader.refused(), c.tooLarge())})
				}
			}
		case e.name == "endpoint":
			select {
			case endpoint <- string(e.data):
			default: // it already has its answer
			}
		case len(e.data) > 0 && (e.name == "" || e.name == "message"):
			c.receive(e.data, c)
		}
	}
}

// errNoRoom fails a call if there is no memory for its answer.
var errNoRoom = errors.New("unread answers of other calls leave no memory for it; make fewer large calls at a time")

// wanted implements inbox.
func (c *Legacy) wanted(id int64, null bool) (func(reply), bool) {
	c.pendingMu.Lock()
	defer c.pendingMu.Unlock()
	waiting, ok := c.pending[id]
	if !ok || null {
		return nil, false
	}
	delete(c.pending, id)
	return func(r reply) {
		if n := cap(r.result); n > uncharged && !waiting.lease.TryAcquire(int64(n)) {
			r = reply{err: fmt.Errorf("%w: %w", jsonrpc.ErrTooLarge, errNoRoom)}
		}
		waiting.answer <- r
	}, true
}

// call implements inbox: all calls share the stream.
func (*Legacy) call() context.Context { return context.Background() }

// Call sends a request and waits for its answer, like [Streamable.Call]. There
// is no session to replace: a lost stream ends the connection.
func (c *Legacy) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	id := c.nextID.Add(1)
	message, err := jsonrpc.AppendRequest(make([]byte, 0, len(method)+len(params)+64), id, method, params)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jsonrpc.ErrInvalidParams, err)
	}
	answer := make(chan reply, 1)
	c.pendingMu.Lock()
	c.pending[id] = waiting{answer, budget.From(ctx)}
	c.pendingMu.Unlock()
	defer func() {
		c.pendingMu.Lock()
		delete(c.pending, id)
		c.pendingMu.Unlock()
	}()
	c.calls.Add(1)
	// A server may hold the request open while it works on the message, and may
	// answer before it acknowledges it. A request under way is not interrupted
	// then: the next message may use the same connection.
	sending, giveUp := context.WithCancelCause(c.ctx)
	failed := make(chan error, 1)
	if !c.begin(func() {
		defer giveUp(context.Canceled)
		if err := c.post(sending, message); err != nil {
			failed <- err
		}
	}) {
		giveUp(context.Canceled)
		return nil, c.Err()
	}
	select {
	case r := <-answer:
		time.AfterFunc(aside, func() { giveUp(context.Canceled) })
		return r.result, r.err
	case err := <-failed:
		if ctx.Err() == nil {
			return nil, err
		}
	case <-ctx.Done():
		giveUp(context.Cause(ctx))
	case <-c.Done():
		select {
		case r := <-answer: // it arrived before the end
			return r.result, r.err
		default:
			return nil, c.Err()
		}
	}
	if method != "initialize" {
		if note := cancelled(id, context.Cause(ctx)); note != nil {
			c.begin(func() { c.answer(note) })
		}
	}
	return nil, context.Cause(ctx)
}

// Notify sends a notification and waits until it has been delivered.
func (c *Legacy) Notify(ctx context.Context, method string, params json.RawMessage) error {
	note, err := jsonrpc.AppendRequest(nil, 0, method, params)
	if err != nil {
		return fmt.Errorf("%w: %w", jsonrpc.ErrInvalidParams, err)
	}
	return c.post(ctx, note)
}

func (c *Legacy) answer(message []byte) {
	select {
	case <-c.ready: // a server can ask before it has announced its endpoint
	case <-c.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, aside)
	defer cancel()
	if err := c.post(ctx, message); err != nil {
		c.dropped.Add(1)
		c.opts.Log.Debug("a message could not be sent", "err", c.hide(err.Error()))
	}
}

func (c *Legacy) post(ctx context.Context, message []byte) error {
	request, detach, end := c.request(ctx)
	defer detach()
	response, err := c.send(request, http.MethodPost, c.endpoint, message, "", nil)
	if err != nil {
		end(context.Canceled)
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		err = c.statusError(response)
		if response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone {
			// The stream is open but belongs to no session.
			c.fail(fmt.Errorf("%w: %w", errSessionLost, err))
			err = c.Err()
		}
	}
	detach()
	c.leave(response, end)
	return err
}

// Stop ends the connection, and returns when nothing of it is left.
func (c *Legacy) Stop(context.Context) error {
	c.fail(errors.New("closed by us"))
	c.wait()
	return nil
}
