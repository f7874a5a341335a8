package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/tail"
)

// Target is the address of a server and what is sent to it, secrets included.
type Target struct {
	URL     string
	Headers map[string]string
	TLS     TLS
	// Credentials authorize requests; nil: Headers do, or nothing.
	Credentials Credentials
}

// Options of a connection. The zero value is usable.
type Options struct {
	Log *slog.Logger
	// MaxMessage bounds a message in bytes, decompressed; MaxDepth its nesting.
	MaxMessage, MaxDepth int
	// OnRequest answers the server's requests, except ping; nil answers "method not
	// found". If a request arrived in the response to a call, its context has the
	// values of the call's context, and ends with it.
	OnRequest jsonrpc.Handler
	// OnNotify receives notifications, except jsonrpc.CancelMethod. It may be called
	// by several goroutines at once, must not block, and must not keep the bytes that
	// it gets.
	OnNotify func(method string, params json.RawMessage)
	// OnGap is called when notifications may have been missed.
	OnGap func()
	// Redact removes secrets from a string; nil removes nothing.
	Redact func(string) string
	// Budget bounds what is read for calls without a sandbox, and for streams that
	// belong to no call; nil is the program's budget.
	Budget *budget.Host
}

const (
	// aside bounds the time for messages other than calls: answers, cancellations,
	// the end of a session.
	aside = 5 * time.Second
	// maxErrorBody bounds what is read of the body of an HTTP error.
	maxErrorBody = 64 << 10
	// maxErrorText bounds what is shown of it.
	maxErrorText = 300
	// lingering is how long an HTTP response may take to end after the awaited
	// answer.
	lingering = 500 * time.Millisecond
)

// ownHeaders are set by us or by the transport.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Host", "Last-Event-Id",
	"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// peer has what both transports share.
type peer struct {
	opts    Options
	client  *http.Client
	url     *url.URL
	headers http.Header
	// credentials may be nil.
	credentials Credentials
	version     atomic.Value // string: MCP-Protocol-Version; empty: none
	nextID      atomic.Int64
	junk        *tail.Buffer
	asked       *jsonrpc.Requests
	oddly       sync.Once // for a warning

	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	err    error // why the connection has ended
	work   sync.WaitGroup

	calls, requests, notifications, unknown, junkMessages, overlong, dropped atomic.Int64
}

// newPeer returns a peer whose answers to the server's requests answer sends.
func newPeer(n *Network, target Target, opts Options, answer func([]byte)) (*peer, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Budget == nil {
		opts.Budget = budget.Program()
	}
	if opts.MaxMessage <= 0 {
		opts.MaxMessage = jsonrpc.DefaultMaxLine
	}
	if opts.MaxDepth <= 0 {
		opts.MaxDepth = jsonrpc.DefaultMaxDepth
	}
	u, err := n.parse(target.URL)
	if err != nil {
		return nil, err
	}
	headers := http.Header{"User-Agent": {"sallyport"}}
	for name, value := range target.Headers {
		headers.Set(name, value)
	}
	for _, name := range ownHeaders {
		headers.Del(name)
	}
	if password, ok := u.User.Password(); ok || u.User.Username() != "" {
		// As a header, it does not appear wherever the URL is shown.
		r := http.Request{Header: headers}
		if headers.Get("Authorization") == "" {
			r.SetBasicAuth(u.User.Username(), password)
		}
		u.User = nil
	}
	client, err := n.client(u, target.TLS)
	if err != nil {
		return nil, err
	}
	p := &peer{opts: opts, client: client, url: u, headers: headers, credentials: target.Credentials, junk: tail.New(jsonrpc.DefaultKeepJunk)}
	p.asked = jsonrpc.NewRequests(opts.OnRequest, answer)
	p.version.Store("")
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p, nil
}

// Speaks sets the protocol revision of everything sent from now on. It is empty
// until it has been agreed on.
func (p *peer) Speaks(version string) { p.version.Store(version) }

// Done is closed when no further call can succeed.
func (p *peer) Done() <-chan struct{} { return p.ctx.Done() }

// Err returns why Done is closed, or nil before. It wraps jsonrpc.ErrClosed.
func (p *peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Junk returns the last data that was not a message.
func (p *peer) Junk() []byte { return p.junk.Bytes() }

// Stats returns the counters.
func (p *peer) Stats() jsonrpc.Stats {
	return jsonrpc.Stats{
		Calls: p.calls.Load(), Requests: p.requests.Load(), Notifications: p.notifications.Load(),
		Unknown: p.unknown.Load(), Junk: p.junkMessages.Load(), Overlong: p.overlong.Load(), Dropped: p.dropped.Load(),
	}
}

// fail ends the connection. Only the first reason is kept.
func (p *peer) fail(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = fmt.Errorf("%w: %w", jsonrpc.ErrClosed, reason)
		p.cancel(p.err)
		p.asked.End(p.err)
	}
}

// wait waits, after fail, until nothing is left.
func (p *peer) wait() {
	p.asked.Wait()
	p.work.Wait()
	p.client.CloseIdleConnections()
}

// hide removes secrets from what is shown: a server may repeat what it was sent.
func (p *peer) hide(text string) string {
	if p.opts.Redact == nil {
		return text
	}
	return p.opts.Redact(text)
}

// begin runs f in a goroutine that the end of the connection waits for. It
// reports false if the connection has ended.
func (p *peer) begin(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false
	}
	p.work.Go(f)
	return true
}

// within returns a context that ends with ctx and with the connection.
func (p *peer) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// pause waits, and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// leave ends a response and its request. It reads a little of the rest in the
// background, so that the connection can be reused: streams usually end right
// after the awaited answer.
func (p *peer) leave(response *http.Response, end context.CancelCauseFunc) {
	if !p.begin(func() {
		timer := time.AfterFunc(lingering, func() { end(context.Canceled) })
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, response.Body, 4<<10)
		_ = response.Body.Close()
		end(context.Canceled)
	}) {
		end(context.Canceled)
		_ = response.Body.Close()
	}
}

// request returns the context of an HTTP request. It ends with the connection,
// and with ctx until it is detached.
func (p *peer) request(ctx context.Context) (request context.Context, detach func() bool, end context.CancelCauseFunc) {
	request, end = context.WithCancelCause(budget.With(p.ctx, budget.From(ctx)))
	return request, context.AfterFunc(ctx, func() { end(context.Cause(ctx)) }), end
}

func mediaType(response *http.Response) string {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return strings.ToLower(kind)
}

// body reads a whole response. One that exceeds the limit is
// jsonrpc.ErrTooLarge.
func (p *peer) body(ctx context.Context, response *http.Response) ([]byte, error) {
	room := &room{ctx: ctx, lease: budget.From(ctx)}
	defer room.close()
	var buffer bytes.Buffer
	if n := response.ContentLength; n > 0 && n <= int64(p.opts.MaxMessage) {
		buffer.Grow(int(min(n, 1<<20)) + bytes.MinRead)
	}
	n, err := buffer.ReadFrom(&roomyReader{r: io.LimitReader(response.Body, int64(p.opts.MaxMessage)+1), room: room})
	switch {
	case n > int64(p.opts.MaxMessage):
		p.overlong.Add(1)
		return nil, p.tooLarge()
	case errors.Is(err, budget.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", jsonrpc.ErrTooLarge, err)
	case err != nil:
		return nil, clean(ctx, err, true)
	}
	return buffer.Bytes(), nil
}

func (p *peer) tooLarge() error {
	return fmt.Errorf("%w: %d bytes are allowed", jsonrpc.ErrTooLarge, p.opts.MaxMessage)
}

// statusError makes an error of a response with an error status: the JSON-RPC
// error in it, or a *StatusError.
func (p *peer) statusError(response *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	e := &StatusError{
		Status:     response.StatusCode,
		RetryAfter: clip(response.Header.Get("Retry-After"), 64),
	}
	if e.Unauthorized() {
		e.Header = http.Header{}
		for _, name := range []string{"Www-Authenticate", "Dpop-Nonce"} {
			e.Header[name] = response.Header[name]
		}
	}
	if !e.Unauthorized() {
		if m, err := jsonrpc.Parse(jsonrpc.ValidUTF8(bytes.TrimSpace(data))); err == nil && m.Method == nil && jsonscan.Kind(m.Failure) == '{' {
			return jsonrpc.DecodeError(m.Failure)
		}
	}
	if kind := mediaType(response); kind == "text/plain" || kind == "application/json" {
		e.Text = clip(printable(p.hide(string(data))), maxErrorText)
	}
	return e
}

// printable returns s as one line without anything that controls a terminal.
func printable(s string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(clean), " ")
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

type reply struct {
	result json.RawMessage
	err    error
}

// inbox handles answers.
type inbox interface {
	// wanted is called with an answer's id, and returns the reply function if the
	// answer is expected. null means that the answer names no request.
	wanted(id int64, null bool) (take func(reply), ok bool)
	// call returns the context of the call for which the server sends, if that is
	// known.
	call() context.Context
}

// receive handles one message, or a batch of them, and may keep the bytes. It waits
// for nothing, so that a call's answer and a cancellation arrive while a request of
// the server is in progress.
func (p *peer) receive(data []byte, in inbox) {
	data = jsonscan.TrimMark(bytes.TrimSpace(data))
	if len(data) == 0 {
		return
	}
	if data[0] == '[' && jsonscan.Valid(data) {
		_ = jsonscan.Elements(data, func(value json.RawMessage) bool {
			p.receiveOne(value, in)
			return true
		})
		return
	}
	p.receiveOne(data, in)
}

func (p *peer) receiveOne(data []byte, in inbox) {
	data = jsonrpc.ValidUTF8(data)
	m, err := jsonrpc.Parse(data)
	switch {
	case err != nil:
		if jsonrpc.AnswersIn(data, func(m jsonrpc.Message) bool {
			if id, ok := m.CallID(); ok {
				if take, ok := in.wanted(id, false); ok {
					take(p.decode(m))
					return true
				}
			}
			return false
		}) {
			p.oddly.Do(func() { p.opts.Log.Warn("the server writes other text around its messages") })
			return
		}
		if id, ok := jsonrpc.AnsweredID(data); ok {
			if take, ok := in.wanted(id, false); ok {
				take(reply{err: notJSON(data, p.opts.Redact)})
				return
			}
		}
		p.keepJunk(data)
	case m.Method != nil && m.ID == nil:
		p.notifications.Add(1)
		if method := m.MethodName(); method == jsonrpc.CancelMethod {
			p.asked.Cancel(m.Params)
		} else if p.opts.OnNotify != nil {
			p.opts.OnNotify(method, m.Params)
		}
	case m.Method != nil:
		p.requests.Add(1)
		params := m.Params
		if p.credentials != nil && params != nil {
			params = p.credentials.Hide(params)
		}
		if answer := p.asked.Take(in.call(), m.ID, m.MethodName(), params); answer != nil && !p.asked.Post(answer) {
			p.dropped.Add(1)
		}
	case m.ID != nil || m.Version != nil && (m.Result != nil || m.Failure != nil):
		id, ok := m.CallID()
		null := jsonscan.Kind(m.ID) == 'n' || m.ID == nil
		if ok || null {
			if take, ok := in.wanted(id, null); ok {
				take(p.decode(m))
				return
			}
		}
		p.unknown.Add(1)
	default:
		p.keepJunk(data)
	}
}

func notJSON(data []byte, redact func(string) string) error {
	if where := jsonrpc.Fault(data, redact); where != "" {
		return fmt.Errorf("%w: %s", jsonrpc.ErrNotJSON, where)
	}
	return jsonrpc.ErrNotJSON
}

func (p *peer) decode(m jsonrpc.Message) reply {
	switch {
	case m.Fails():
		return reply{err: jsonrpc.DecodeError(m.Failure)}
	case m.Result == nil:
		return reply{err: fmt.Errorf("%w: it has no result and no error", jsonrpc.ErrMalformed)}
	case m.Depth > p.opts.MaxDepth:
		return reply{err: jsonrpc.TooDeep(m.Depth, p.opts.MaxDepth, m.Result)}
	}
	if p.credentials != nil {
		return reply{result: p.credentials.Hide(m.Result)}
	}
	return reply{result: m.Result}
}

func (p *peer) keepJunk(data []byte) {
	p.junkMessages.Add(1)
	_, _ = p.junk.Write(data[:min(len(data), 4<<10)])
	_, _ = p.junk.Write([]byte{'\n'})
}

// cancelled returns the notification that cancels a call.
func cancelled(id int64, cause error) []byte {
	reason, err := json.Marshal(cause.Error())
	if err != nil {
		reason = []byte(`""`)
	}
	note, err := jsonrpc.AppendRequest(nil, 0, jsonrpc.CancelMethod, fmt.Appendf(nil, `{"requestId":%d,"reason":%s}`, id, reason))
	if err != nil {
		return nil
	}
	return note
}

// isTransient reports whether a stream may be requested again.
func isTransient(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Status >= 500 || status.Status == http.StatusTooManyRequests || status.Status == http.StatusRequestTimeout
	}
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrLost)
}
