package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/jsonrpc"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// codeUnsupportedVersion is the error of a server of the second era that
// refuses a version; it lists the supported ones.
const codeUnsupportedVersion = -32022

// reach connects to a remote server and agrees on a session.
func (p *Pool) reach(ctx context.Context, e *entry, def Definition, known era, failed *Error) (*Server, error) {
	began := time.Now()
	patience := p.startLimit(e)
	bounded, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w after %s", ErrTimeout, patience))
	defer cancel()
	r := def.Remote()
	login, err := p.login(def, e.from)
	if err != nil {
		failed.Err = redactError(def, err)
		return nil, failed
	}
	if login != nil {
		def = def.Hiding(login.Redact)
	}
	s := p.newServer(e, def)
	call := approach{
		pool: p, network: e.from.network, server: s, patience: patience,
		target: remote.Target{URL: r.URL, Headers: r.Headers, TLS: remote.TLS(r.TLS)},
		options: remote.Options{
			Log: s.log, MaxMessage: p.opts.MaxLine, OnRequest: s.requested, OnNotify: s.notified,
			OnGap: s.tools.invalidate, Redact: def.Redact,
		},
	}
	if login != nil {
		call.target.Credentials = login
	}
	err = call.any(bounded, r.Transport, known)
	switch {
	case err == nil:
		p.up(s, began)
		return s, nil
	case ctx.Err() != nil:
		failed.Err = context.Cause(ctx)
	case errors.Is(err, ErrTimeout):
		failed.Err = timeoutError{patience}
	default:
		var answered *jsonrpc.Error
		if errors.As(err, &answered) {
			err = fmt.Errorf("initialize: %w", s.redactAnswer(answered))
		}
		failed.Err = redactError(def, withAdvice(def, err))
	}
	return nil, failed
}

// approach tries the ways to connect to a remote server. It sets what worked in
// the server.
type approach struct {
	pool    *Pool
	network *remote.Network
	server  *Server
	target  remote.Target
	options remote.Options
	// patience bounds each request of the handshake.
	patience time.Duration
}

// any tries streamable HTTP first, and the older transport if the server does
// not know it; or first what worked before.
func (a *approach) any(ctx context.Context, want definitions.Transport, known era) error {
	if want == definitions.SSE {
		return a.events(ctx)
	}
	if known == eraEvents {
		err := a.events(ctx)
		if err == nil || decisive(ctx, err) {
			return err
		}
	}
	err := a.streamable(ctx, known)
	if err == nil || known == eraEvents || !knowsNoPost(err) {
		return err
	}
	if second := a.events(ctx); second != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w (and over the older HTTP with server-sent events: %w)", err, second)
	}
	return nil
}

// decisive reports whether an error would be the same for every request.
func decisive(ctx context.Context, err error) bool {
	var status *remote.StatusError
	return ctx.Err() != nil || errors.Is(err, remote.ErrRefused) || errors.Is(err, remote.ErrUnreachable) || errors.Is(err, remote.ErrCredentials) ||
		errors.As(err, &status) && status.Unauthorized()
}

// knowsNoPost reports whether a server refused a message as one does that
// expects a stream to be opened first.
func knowsNoPost(err error) bool {
	var status *remote.StatusError
	if !errors.As(err, &status) || status.Unauthorized() {
		return false
	}
	return status.Status >= 400 && status.Status < 500 &&
		status.Status != http.StatusRequestTimeout && status.Status != http.StatusTooManyRequests && status.Status != http.StatusProxyAuthRequired
}

// streamable agrees on a session over streamable HTTP. Trying server/discover
// first harms no server here: a request is a connection of its own, which ends
// at its deadline.
func (a *approach) streamable(ctx context.Context, known era) error {
	c, err := a.network.NewStreamable(a.target, a.options)
	if err != nil {
		return err
	}
	session, err := a.agree(ctx, c, known)
	if err != nil {
		_ = c.Stop(a.pool.patience)
		return err
	}
	a.server.conn, a.server.session = c, session
	// Some ask on the stream of the connection, not on that of the call.
	if asks := a.server.may != (inquiry.Takes{}); session.era == eraHandshake && (session.announces || asks) {
		c.Listen()
	}
	return nil
}

func (a *approach) agree(ctx context.Context, c *remote.Streamable, known era) (*session, error) {
	client := a.pool.introduces(a.server)
	if known != eraHandshake {
		patience := a.pool.opts.Probe
		if known == eraStateless {
			patience = a.patience
		}
		s, err := discover(ctx, c, client, patience)
		if refusedVersion(err) {
			s, err = discover(ctx, c, client, patience)
		}
		if err == nil || decisive(ctx, err) {
			return s, err
		}
		a.server.log.Debug("the server does not know server/discover", "err", redactError(a.server.def, err))
	}
	c.Speaks("")
	s, err := initialize(ctx, c, client, a.patience)
	var answered *jsonrpc.Error
	if known == eraHandshake && (errors.As(err, &answered) || errors.Is(err, errSpeaksStateless)) {
		// A different version of the server spoke like that.
		if s, err := discover(ctx, c, client, a.pool.opts.Probe); err == nil {
			return s, nil
		}
	}
	return s, err
}

// refusedVersion reports whether a server refused our version although it lists
// it as supported.
func refusedVersion(err error) bool {
	var answered *jsonrpc.Error
	if !errors.As(err, &answered) || answered.Code != codeUnsupportedVersion {
		return false
	}
	var data struct {
		Supported []string `json:"supported"`
	}
	_ = json.Unmarshal(answered.Data, &data) // invalid data names no versions
	return slices.Contains(data.Supported, stateless)
}

// events agrees on a session over HTTP with server-sent events.
func (a *approach) events(ctx context.Context) error {
	c, err := a.network.DialLegacy(ctx, a.target, a.options)
	if err != nil {
		return err
	}
	session, err := initialize(ctx, c, a.pool.introduces(a.server), a.patience)
	if err != nil {
		_ = c.Stop(a.pool.patience)
		return err
	}
	session.era = eraEvents
	a.server.conn, a.server.session = c, session
	return nil
}
