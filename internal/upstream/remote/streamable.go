package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
)

const (
	bothTypes  = "application/json, text/event-stream"
	onlyEvents = "text/event-stream"

	// standardHeaders is the revision from which on requests name their method in
	// headers, and there are no sessions.
	standardHeaders = "2026-07-28"
	maxSessionID    = 1 << 10
)

// errSessionLost means that the server does not know our session any more, and
// did not process the request.
var errSessionLost = errors.New("the server has forgotten the session")

// Streamable is a connection over streamable HTTP. Its methods are safe for
// concurrent use.
type Streamable struct {
	*peer

	renewing sync.Mutex // held while a lost session is replaced

	session struct {
		sync.Mutex
		id      string
		hello   []byte // the initialize request, to send it again
		helloID int64
		version string // that was agreed on
		listen  bool   // keep a stream for unsolicited messages open
		stop    context.CancelFunc
	}
}

// NewStreamable does not connect yet.
func (n *Network) NewStreamable(target Target, opts Options) (*Streamable, error) {
	c := new(Streamable)
	var err error
	if c.peer, err = newPeer(n, target, opts, c.answer); err != nil {
		return nil, err
	}
	return c, nil
}

// Call sends a request and waits for its answer, whose bytes the caller owns.
//
// An error is a *jsonrpc.Error if the server answered with one, and otherwise
// ErrUnreachable, ErrRefused, ErrLost, a *StatusError, an error of package
// jsonrpc or the context's cause. Ending the context tells the server to stop.
// If the server has lost the session, Call opens a new one and sends the
// request again.
func (c *Streamable) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return c.CallWith(ctx, method, params, nil)
}

// CallWith is Call with additional headers, which are part of the request's
// meaning.
func (c *Streamable) CallWith(ctx context.Context, method string, params json.RawMessage, headers map[string]string) (json.RawMessage, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	id := c.nextID.Add(1)
	in := one{id: id, by: ctx}
	if budget.From(ctx) == nil {
		lease := c.opts.Budget.Own.Lease()
		defer lease.Release()
		ctx = budget.With(ctx, lease)
	}
	message, err := jsonrpc.AppendRequest(make([]byte, 0, len(method)+len(params)+64), id, method, params)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jsonrpc.ErrInvalidParams, err)
	}
	c.calls.Add(1)
	more := c.headersOf(method, params)
	for name, value := range headers {
		more.Set(name, value)
	}
	inner, release := c.within(ctx)
	defer release()
	session := c.sessionID()
	result, err := c.exchange(inner, in, method, message, more, session)
	if errors.Is(err, errSessionLost) {
		if err = c.renew(inner, session); err == nil {
			result, err = c.exchange(inner, in, method, message, more, c.sessionID())
		}
	}
	if err != nil && ctx.Err() != nil {
		if session != "" || c.speaks() < standardHeaders {
			c.tell(method, cancelled(id, context.Cause(ctx)))
		}
		return nil, context.Cause(ctx)
	}
	if err == nil && method == "initialize" {
		c.session.Lock()
		c.session.hello, c.session.helloID, c.session.version = message, id, protocolVersion(result)
		c.session.Unlock()
	}
	return result, err
}

// tell sends a cancellation without waiting for it. Since 2026-07-28, closing
// the request is what cancels it.
func (c *Streamable) tell(method string, note []byte) {
	if method == "initialize" || note == nil {
		return
	}
	c.begin(func() {
		ctx, cancel := context.WithTimeout(c.ctx, aside)
		defer cancel()
		if err := c.post(ctx, jsonrpc.CancelMethod, note); err != nil {
			c.opts.Log.Debug("a call could not be cancelled", "err", c.hide(err.Error()))
		}
	})
}

// Notify sends a notification and waits until it has been delivered.
func (c *Streamable) Notify(ctx context.Context, method string, params json.RawMessage) error {
	note, err := jsonrpc.AppendRequest(nil, 0, method, params)
	if err != nil {
		return fmt.Errorf("%w: %w", jsonrpc.ErrInvalidParams, err)
	}
	if err := c.Err(); err != nil {
		return err
	}
	ctx, release := c.within(ctx)
	defer release()
	return c.post(ctx, method, note)
}

// Listen opens a stream for the server's unsolicited messages, in revisions
// that have one, and keeps it open.
func (c *Streamable) Listen() {
	c.session.Lock()
	defer c.session.Unlock()
	c.session.listen = true
	c.openStream()
}

// openStream opens the stream. The session must be locked.
func (c *Streamable) openStream() {
	if c.session.stop != nil {
		c.session.stop()
	}
	ctx, stop := context.WithCancel(c.ctx)
	c.session.stop = stop
	if !c.begin(func() { c.stream(ctx) }) {
		stop()
	}
}

// Stop ends the connection: calls fail, and the session is ended. It returns
// when nothing is left. ctx bounds the messages to the server.
func (c *Streamable) Stop(ctx context.Context) error {
	session := c.sessionID()
	first := c.Err() == nil
	c.fail(errors.New("closed by us"))
	if first && session != "" {
		ctx, cancel := context.WithTimeout(ctx, aside)
		defer cancel()
		response, err := c.send(ctx, http.MethodDelete, c.url, nil, "", http.Header{"Mcp-Session-Id": {session}})
		if err != nil {
			c.opts.Log.Debug("the session could not be given back", "err", c.hide(err.Error()))
		} else {
			_ = response.Body.Close()
		}
	}
	c.wait()
	return nil
}

func (c *Streamable) speaks() string {
	v, _ := c.version.Load().(string)
	return v
}

func (c *Streamable) sessionID() string {
	c.session.Lock()
	defer c.session.Unlock()
	return c.session.id
}

// headersOf returns the headers that a request has since 2026-07-28.
func (c *Streamable) headersOf(method string, params json.RawMessage) http.Header {
	h := http.Header{}
	if c.speaks() < standardHeaders {
		return h
	}
	h.Set("Mcp-Method", method)
	key := ""
	switch method {
	case "tools/call", "prompts/get":
		key = "name"
	case "resources/read":
		key = "uri"
	default:
		return h
	}
	_ = jsonscan.Members(params, func(name string, value json.RawMessage) bool {
		var text string
		if name != key || json.Unmarshal(value, &text) != nil {
			return true
		}
		h.Set("Mcp-Name", EncodeHeader(text))
		return false
	})
	return h
}

// exchange posts a request and reads its answer.
func (c *Streamable) exchange(ctx context.Context, in one, method string, message []byte, more http.Header, session string) (json.RawMessage, error) {
	if session != "" {
		more.Set("Mcp-Session-Id", session)
	}
	request, detach, end := c.request(ctx)
	defer detach()
	response, err := c.send(request, http.MethodPost, c.url, message, bothTypes, more)
	if err != nil {
		end(context.Canceled)
		return nil, err
	}
	defer func() {
		detach()
		c.leave(response, end)
	}()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, c.refusedBy(response, session)
	}
	if method == "initialize" {
		if err := c.takeSession(response); err != nil {
			return nil, err
		}
	}
	kind := mediaType(response)
	if kind != onlyEvents {
		// Some servers send messages as the type that their language sends by default.
		body := bufio.NewReader(response.Body)
		if first, _ := body.Peek(1); len(first) > 0 && first[0] == '{' {
			kind = "application/json"
		}
		response.Body = struct {
			io.Reader
			io.Closer
		}{body, response.Body}
	}
	switch kind {
	case "application/json", "":
		data, err := c.body(request, response)
		if err != nil {
			return nil, err
		}
		return c.whole(data, in)
	case onlyEvents:
		return c.follow(request, in, &response, session)
	default:
		return nil, fmt.Errorf("%w: its type is %.60q", jsonrpc.ErrMalformed, kind)
	}
}

// refusedBy makes an error of a status. A server should answer an unknown
// session with 404; some use 400.
func (c *Streamable) refusedBy(response *http.Response, session string) error {
	err := c.statusError(response)
	if session == "" {
		return err
	}
	if response.StatusCode == http.StatusNotFound ||
		response.StatusCode == http.StatusBadRequest && strings.Contains(strings.ToLower(err.Error()), "session") {
		return fmt.Errorf("%w: %w", errSessionLost, err)
	}
	return err
}

// takeSession keeps the session that the answer to initialize names.
func (c *Streamable) takeSession(response *http.Response) error {
	id := response.Header.Get("Mcp-Session-Id")
	if len(id) > maxSessionID {
		return fmt.Errorf("%w: a session of %d bytes", jsonrpc.ErrMalformed, len(id))
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return fmt.Errorf("%w: the session has characters that it must not have", jsonrpc.ErrMalformed)
		}
	}
	c.session.Lock()
	defer c.session.Unlock()
	c.session.id = id
	return nil
}

// one waits for the answer to a call in an HTTP response of its own, where an
// answer without an id can only belong to this call.
type one struct {
	id    int64
	by    context.Context // the caller's
	got   bool
	reply reply
}

func (o *one) wanted(id int64, null bool) (func(reply), bool) {
	if o.got || !null && id != o.id {
		return nil, false
	}
	return func(r reply) { o.got, o.reply = true, r }, true
}

func (o *one) call() context.Context { return o.by }

// whole reads an answer that is not a stream.
func (c *Streamable) whole(data []byte, in one) (json.RawMessage, error) {
	data = jsonscan.TrimMark(bytes.TrimSpace(data))
	c.receive(data, &in)
	if !in.got {
		if !jsonscan.Valid(data) {
			return nil, notJSON(data, c.opts.Redact)
		}
		return nil, fmt.Errorf("%w: it is not the answer to this request: %s", jsonrpc.ErrMalformed, jsonrpc.Shown(data, c.opts.Redact))
	}
	return in.reply.result, in.reply.err
}

// answer sends our answer to a request of the server.
func (c *Streamable) answer(message []byte) {
	ctx, cancel := context.WithTimeout(c.ctx, aside)
	defer cancel()
	if err := c.post(ctx, "", message); err != nil {
		c.dropped.Add(1)
		c.opts.Log.Debug("the server's request could not be answered", "err", c.hide(err.Error()))
	}
}

// post sends a message that has no answer.
func (c *Streamable) post(ctx context.Context, method string, message []byte) error {
	more := http.Header{}
	if method != "" {
		more = c.headersOf(method, nil)
	}
	if session := c.sessionID(); session != "" {
		more.Set("Mcp-Session-Id", session)
	}
	request, detach, end := c.request(ctx)
	defer detach()
	response, err := c.send(request, http.MethodPost, c.url, message, bothTypes, more)
	if err != nil {
		end(context.Canceled)
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		err = c.statusError(response)
	}
	detach()
	c.leave(response, end)
	return err
}

func protocolVersion(result json.RawMessage) string {
	var r struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(result, &r) // an invalid result leaves it empty
	return r.ProtocolVersion
}

// renew replaces a session that the server has lost. Callers that lost the same
// session share the new one.
func (c *Streamable) renew(ctx context.Context, lost string) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	c.session.Lock()
	now, hello, id, version := c.session.id, c.session.hello, c.session.helloID, c.session.version
	c.session.Unlock()
	if now != lost {
		return nil // another caller was faster
	}
	if hello == nil {
		return errSessionLost
	}
	result, err := c.exchange(ctx, one{id: id, by: c.ctx}, "initialize", hello, http.Header{}, "")
	if err != nil {
		return fmt.Errorf("%w, and a new one could not be opened: %w", errSessionLost, err)
	}
	if got := protocolVersion(result); got != version {
		// What was agreed on no longer holds: start over.
		err := fmt.Errorf("%w, and speaks %.40q now instead of %s", errSessionLost, got, version)
		c.fail(err)
		return c.Err()
	}
	note, err := jsonrpc.AppendRequest(nil, 0, "notifications/initialized", nil)
	if err == nil {
		err = c.post(ctx, "notifications/initialized", note)
	}
	if err != nil {
		return fmt.Errorf("%w, and a new one could not be opened: %w", errSessionLost, err)
	}
	c.session.Lock()
	if c.session.listen {
		c.openStream()
	}
	c.session.Unlock()
	if c.opts.OnGap != nil {
		c.opts.OnGap()
	}
	c.opts.Log.Info("the server had forgotten the session; a new one was opened")
	return nil
}
