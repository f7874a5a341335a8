package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/upstream/oauth"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

// ErrNoLogin means that a server answers without a login.
var ErrNoLogin = errors.New("the server asks for no login")

// login returns the user's login at a definition's server, which has been
// resolved; nil if its requests need none or are authorized by headers.
func (p *Pool) login(def Definition, from *surroundings) (*oauth.Login, error) {
	r := def.Remote()
	if p.opts.Logins == nil || r == nil || r.OAuth.Off || authorizes(def) {
		return nil, nil
	}
	if u, err := url.Parse(r.URL); err == nil && u.User != nil {
		return nil, nil // they are sent as a header
	}
	client, err := from.network.SignIn(r.URL, remote.TLS(r.TLS))
	if err != nil {
		return nil, err
	}
	o := r.OAuth
	idp := oauth.IdP{Issuer: o.IdP, ClientID: o.IdPID, ClientSecret: o.IdPSecret}
	if idp.Issuer != "" { // it may be where the server must not send us
		if idp.HTTP, err = from.network.SignIn(idp.Issuer, remote.TLS{}); err != nil {
			return nil, err
		}
	}
	return p.opts.Logins.At(oauth.Server{
		Name: def.Name, URL: r.URL, HTTP: client, Keyring: from.logins,
		Client: oauth.Client{
			ID: o.ID, Secret: o.Secret, Issuer: o.Issuer, Scopes: o.Scopes, RedirectURL: o.RedirectURL, Grant: oauth.Grant(o.Grant),
			Key: o.Key, Algorithm: o.Algorithm, Assertion: o.Assertion,
			IdP: idp,
		},
	}), nil
}

// signedIn reports whether the user has signed in since a start failed for want of
// that. The caller holds e.mu.
func (p *Pool) signedIn(e *entry) bool {
	var asks *oauth.SignInError
	if !errors.As(e.lastErr, &asks) {
		return false
	}
	status, ok, err := asks.Login.Status()
	return err == nil && ok && status.Ended == "" && status.Since.After(e.failedAt)
}

// authorizes reports whether a definition has credentials of its own.
func authorizes(def Definition) bool {
	return slices.ContainsFunc(def.HeaderNames, func(name string) bool { return strings.EqualFold(name, "Authorization") })
}

// Login returns the user's login at a server, which need not exist yet, and false
// if there can be none: the server is unknown, a program, has credentials in
// its definition or says no to OAuth there, or a secret that its URL contains
// cannot be read.
func (m *Manager) Login(name string) (*oauth.Login, bool) {
	def, ok := m.Definition(name)
	if !ok || def.Remote() == nil {
		return nil, false
	}
	var login *oauth.Login
	var err error
	if r := def.Remote(); strings.Contains(r.URL, "${") || r.OAuth.Refers() {
		ctx, cancel := context.WithTimeout(context.Background(), m.pool.startTimeout(def))
		defer cancel()
		login, _, err = m.login(ctx, def)
	} else { // no keyring need be asked for what only requests to the server have
		login, err = m.pool.login(def, m.from)
	}
	return login, err == nil && login != nil
}

// login returns the login of a definition's server, and the definition with its
// secrets.
func (m *Manager) login(ctx context.Context, def Definition) (*oauth.Login, Definition, error) {
	def, err := def.Resolve(ctx, m.from.secrets)
	if err != nil {
		return nil, def, err
	}
	login, err := m.pool.login(def, m.from)
	return login, def, err
}

// SignIn signs the user in at a server. open is called for where the browser
// returns to; see oauth.Login.SignIn. If the server asks for no login and names no
// authorization server, the error is ErrNoLogin.
func (m *Manager) SignIn(ctx context.Context, name string, open func(want string) (oauth.Redirect, error)) (oauth.Status, error) {
	slot, err := m.usable(ctx, name)
	if err != nil {
		return oauth.Status{}, err
	}
	login, def, err := m.login(ctx, slot.def)
	switch {
	case err != nil:
		return oauth.Status{}, redactError(def, err)
	case login == nil:
		return oauth.Status{}, ErrNoLogin
	}
	wants, header, err := m.pool.wants(ctx, def, m.from)
	if err != nil {
		return oauth.Status{}, redactError(def, err)
	}
	if !wants { // some ask only at certain tools, and say where
		wants, err = login.Named(ctx)
		switch {
		case err != nil:
			return oauth.Status{}, redactError(def, err)
		case !wants:
			return oauth.Status{}, ErrNoLogin
		}
	}
	status, err := login.SignIn(ctx, header, open)
	if err != nil {
		return status, redactError(def, err)
	}
	return status, nil
}

// wants connects to a server without credentials. It returns the headers with
// which the server refuses that.
func (p *Pool) wants(ctx context.Context, def Definition, from *surroundings) (bool, http.Header, error) {
	patience := p.startTimeout(def)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w after %s", ErrTimeout, patience))
	defer cancel()
	r := def.Remote()
	s := &Server{def: def, live: &live{log: p.opts.Log.With("server", def.Name), tools: newToolCache()}}
	call := approach{
		pool: p, network: from.network, server: s, patience: patience,
		target:  remote.Target{URL: r.URL, Headers: r.Headers, TLS: remote.TLS(r.TLS)},
		options: remote.Options{Log: p.opts.Log, MaxMessage: p.opts.MaxLine, OnRequest: s.requested, Redact: def.Redact},
	}
	err := call.any(ctx, r.Transport, eraUnknown)
	if err == nil {
		return false, nil, call.server.conn.Stop(ctx)
	}
	var status *remote.StatusError
	if errors.As(err, &status) && status.Unauthorized() {
		return true, status.Header, nil
	}
	return false, nil, err
}

// withAdvice adds to an error what the user can do about it.
func withAdvice(def Definition, err error) error {
	var status *remote.StatusError
	known := errors.As(err, &status) && status.Unauthorized()
	const token = `"headers": {"Authorization": "Bearer ${NAME}"}, where ${NAME}, ${file:/path} or ${keyring:NAME} holds it`
	switch {
	case known && status.Reason != nil:
		return fmt.Errorf("%w (%w): %w", ErrUnauthorized, err, status.Reason)
	case errors.Is(err, remote.ErrCredentials):
		return fmt.Errorf("%w: %w", ErrUnauthorized, err)
	case !known:
		return err
	case status.Status == http.StatusForbidden:
		return fmt.Errorf("%w: the server does not accept our credentials (%w)", ErrUnauthorized, err)
	case authorizes(def):
		return fmt.Errorf("%w (%w): it does not accept the Authorization header of the definition: check that the header is there, complete and still valid. "+
			"Without that header, 'sallyport servers login' signs you in with OAuth", ErrUnauthorized, err)
	}
	return fmt.Errorf("%w (%w): give it a token in its definition, such as "+token, ErrUnauthorized, err)
}

var _ remote.Credentials = (*oauth.Login)(nil)
