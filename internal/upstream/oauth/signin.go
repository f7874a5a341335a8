package oauth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// Redirect is where browsers return to while a person signs in. It is opened for
// one sign-in.
type Redirect interface {
	// URL is the redirect URL, as authorization servers get it.
	URL() string
	// Visit sends a person to an address, and returns the URL that they came back
	// with.
	Visit(ctx context.Context, address string) (redirect string, err error)
	Close() error
}

// patience is how long a sign-in waits for the person.
const patience = 15 * time.Minute

// SignIn signs the user in at the login's server. challenge has the header of the
// answer with 401 or 403 that the server gave, or is nil. open is called once the
// redirect URL is known: want is one that is registered already, or empty.
func (l *Login) SignIn(ctx context.Context, challenge http.Header, open func(want string) (Redirect, error)) (Status, error) {
	s := &l.server
	c := readChallenge(challenge)
	if s.Client.Grant != Person {
		return l.signInAlone(ctx, c, open)
	}
	a, err := discover(ctx, s, c)
	if err != nil {
		return Status{}, err
	}
	before, err := l.logins.load(ctx, s.Keyring, l.key)
	if err != nil {
		return Status{}, err
	}
	want, err := l.registered(ctx, a)
	if err != nil {
		return Status{}, err
	}
	redirect, err := open(want)
	if err != nil {
		return Status{}, err
	}
	defer redirect.Close()
	if own := s.Client.RedirectURL; own != "" && !sameRedirect(own, redirect.URL()) {
		return Status{}, fmt.Errorf("the client of %s is registered for the redirect URL %s, whose port is not free: end the program that listens there, and sign in again", s.Name, own)
	}
	p, err := l.logins.join(ctx, s, a, redirect.URL())
	if err != nil {
		return Status{}, err
	}
	if err := p.bind(a); err != nil {
		return Status{}, err
	}
	v := visit{client: s.HTTP, authority: a, party: p, scopes: requestedScopes(s, a, before)}
	g, err := v.run(ctx, redirect)
	if err != nil {
		l.unregister(ctx, p, err)
		return Status{}, err
	}
	r := &record{
		Server: s.Name, URL: s.URL, Resource: a.Resource, Party: *p,
		Access: g.Access, Refresh: g.Refresh, DPoP: g.Type == typeDPoP,
		Expires: g.Expires, Scopes: g.Scopes, Since: time.Now(),
	}
	if r.Scopes == nil {
		r.Scopes = v.scopes
	}
	if err := r.takeIdentity(s, g); err != nil {
		return Status{}, err
	}
	r.Account = v.account(ctx, g, r.Scopes, time.Now())
	if err := l.replace(ctx, r); err != nil {
		return Status{}, err
	}
	status, _, err := l.Status()
	return status, err
}

// signInAlone obtains a token as the definition says, at once rather than with the
// first request. A person signs in at the identity provider, if there is one.
func (l *Login) signInAlone(ctx context.Context, c challenge, open func(want string) (Redirect, error)) (Status, error) {
	if l.server.Client.Grant == Enterprise {
		if err := l.signInProvider(ctx, open); err != nil {
			return Status{}, err
		}
	}
	unlock, err := l.logins.lock(l.key)
	if err != nil {
		return Status{}, err
	}
	defer unlock()
	r, err := l.grant(ctx, c, nil)
	if err != nil {
		return Status{}, err
	}
	r.Renewed, r.Grant = l.logins.now(), l.server.Client.Grant
	if err := l.logins.save(ctx, l.server.Keyring, l.key, r); err != nil {
		return Status{}, err
	}
	status, _, err := l.Status()
	return status, err
}

// unregister forgets our registration if a sign-in failed because the authorization
// server does not know it any more, or may not: that is shown to the person, who
// does not come back then.
func (l *Login) unregister(ctx context.Context, p *party, failure error) {
	var refused *refusedError
	unknown := errors.As(failure, &refused) && (refused.Code == "invalid_client" || refused.Code == "unauthorized_client")
	if p.Redirect == "" || !unknown && ctx.Err() == nil {
		return
	}
	if err := l.logins.keep(context.WithoutCancel(ctx), l.server.Keyring, p.Issuer, nil); err != nil {
		l.logins.opts.Log.Warn("a registration could not be removed", "issuer", p.Issuer, "error", err)
	}
}

// replace stores the login. A process that renews the one before comes first.
func (l *Login) replace(ctx context.Context, r *record) error {
	unlock, err := l.logins.lock(l.key)
	if err != nil {
		return err
	}
	defer unlock()
	return l.logins.save(ctx, l.server.Keyring, l.key, r)
}

// registered returns the redirect URL that join can use without another
// registration, and "" if any will do.
func (l *Login) registered(ctx context.Context, a *authority) (string, error) {
	s := &l.server
	if s.Client.ID != "" || s.Client.RedirectURL != "" || a.Metadata && l.logins.opts.Metadata != "" {
		return s.Client.RedirectURL, nil
	}
	p, err := l.logins.registration(ctx, s.Keyring, a.Issuer)
	if err != nil || p == nil {
		return "", err
	}
	return p.Redirect, nil
}

// sameRedirect reports whether got is the redirect URL want, with any port if want
// has none.
func sameRedirect(want, got string) bool {
	w, err := url.Parse(want)
	g, gerr := url.Parse(got)
	if err != nil || gerr != nil {
		return false
	}
	return w.Scheme == g.Scheme && strings.EqualFold(w.Hostname(), g.Hostname()) && w.EscapedPath() == g.EscapedPath() &&
		(w.Port() == "" || w.Port() == g.Port())
}

// requestedScopes returns the scopes to ask for: those of the login before, so that
// more for one request does not mean less for others, and those that the definition
// or else the server asks for.
func requestedScopes(s *Server, a *authority, before *record) []string {
	var scopes []string
	if before != nil && before.Party.Issuer == a.Issuer {
		scopes = union(before.Scopes, before.Wanted)
	}
	scopes = union(scopes, scopesFor(s, a, nil))
	if slices.Contains(a.Supported, offlineAccess) {
		scopes = union(scopes, []string{offlineAccess})
	}
	return scopes
}

const (
	offlineAccess = "offline_access" // a token that renews others
	openID        = "openid"         // an ID token
)

// visit is a person's visit to an authorization server, from the address in the
// browser to the token.
type visit struct {
	client    *http.Client
	authority *authority
	party     *party
	scopes    []string

	state, verifier, nonce string
}

// run sends the person to the authorization server and obtains a token with what
// they come back with.
func (v *visit) run(ctx context.Context, redirect Redirect) (*granted, error) {
	address, err := v.begin(redirect.URL())
	if err != nil {
		return nil, err
	}
	back, err := waitFor(ctx, redirect, address)
	if err != nil {
		return nil, err
	}
	code, err := v.code(back)
	if err != nil {
		return nil, err
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {redirect.URL()},
		"code_verifier": {v.verifier},
	}
	if v.authority.Resource != "" {
		form.Set("resource", v.authority.Resource)
	}
	g, err := v.party.request(ctx, v.client, form)
	if err != nil {
		return nil, fmt.Errorf("obtaining a token from %s: %w", hostOf(v.party.Token), err)
	}
	return g, nil
}

// begin returns the address that the person visits.
func (v *visit) begin(redirect string) (string, error) {
	u, err := url.Parse(v.authority.Authorization)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "" {
		return "", fmt.Errorf("%w: the address at which users authorize this program is not a URL for browsers", ErrHostile)
	}
	v.state, v.verifier = rand.Text(), oauth2.GenerateVerifier()
	q := u.Query() // what it has stays (RFC 6749, section 3.1)
	q.Set("response_type", "code")
	q.Set("client_id", v.party.ID)
	q.Set("redirect_uri", redirect)
	q.Set("state", v.state)
	q.Set("code_challenge", oauth2.S256ChallengeFromVerifier(v.verifier))
	q.Set("code_challenge_method", "S256")
	if v.authority.Resource != "" {
		q.Set("resource", v.authority.Resource)
	}
	if len(v.scopes) > 0 {
		q.Set("scope", strings.Join(v.scopes, " "))
	}
	if slices.Contains(v.scopes, openID) {
		v.nonce = rand.Text()
		q.Set("nonce", v.nonce)
	}
	if slices.Contains(v.scopes, offlineAccess) {
		q.Set("prompt", "consent") // without it the scope is ignored (OpenID Connect Core, section 11)
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// waitFor waits until the person is back.
func waitFor(ctx context.Context, redirect Redirect, address string) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	back, err := redirect.Visit(waiting, address)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return "", fmt.Errorf("no one signed in within %d minutes: run the command again", int(patience.Minutes()))
	}
	return back, err
}

// code checks what the person came back with, and returns the code in it.
func (v *visit) code(redirect string) (string, error) {
	r, err := readAnswer(redirect)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrHostile, err)
	}
	if !r.belongs(v.state) {
		return "", fmt.Errorf("%w: the browser came back with an answer that belongs to another sign-in (state)", ErrHostile)
	}
	// Before anything else of the answer is believed: which server is it from? The
	// code of one must not be sent to another (RFC 9207, section 2.4).
	switch {
	case r.issuer == "" && v.authority.Names:
		return "", fmt.Errorf("%w: the browser came back with an answer that does not say which authorization server it is from, although %s says that its answers do (iss)", ErrHostile, printable(v.authority.Issuer))
	case r.issuer != "" && r.issuer != v.authority.Issuer:
		return "", fmt.Errorf("%w: the browser came back with an answer of the authorization server %s, not of %s (iss)", ErrHostile, printable(r.issuer), printable(v.authority.Issuer))
	case r.refused != nil:
		return "", fmt.Errorf("%s did not let this program in: %w", hostOf(v.authority.Authorization), r.refused)
	case r.code == "":
		return "", fmt.Errorf("%w: the browser came back without a code", ErrHostile)
	}
	return r.code, nil
}

// returned is what a redirect URL contains (RFC 6749, section 4.1.2; RFC 9207).
type returned struct {
	code, state, issuer string
	refused             *refusedError
}

// The longest redirect URL and the longest code.
const (
	longestRedirect = 32 << 10
	longestCode     = 16 << 10
)

// readAnswer reads a redirect URL. Its errors contain nothing of it.
func readAnswer(redirect string) (*returned, error) {
	if len(redirect) > longestRedirect {
		return nil, errors.New("the redirect URL is too long")
	}
	u, err := url.Parse(redirect)
	if err != nil {
		return nil, errors.New("the redirect URL cannot be read")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the query of the redirect URL cannot be read")
	}
	for _, name := range []string{"code", "state", "iss", "error", "error_description"} {
		if len(q[name]) > 1 {
			return nil, fmt.Errorf("the redirect URL has the parameter %s twice", name)
		}
	}
	r := &returned{code: q.Get("code"), state: q.Get("state"), issuer: q.Get("iss")}
	if len(r.code) > longestCode || strings.ContainsFunc(r.code, func(c rune) bool { return c < ' ' || c > '~' }) {
		return nil, errors.New("the redirect URL has a code that is too long or contains other characters than ASCII has")
	}
	if q.Has("error") {
		r.refused = &refusedError{Code: printable(q.Get("error")), Description: printable(q.Get("error_description"))}
	}
	return r, nil
}

// belongs reports whether the answer is one to a request with this state.
func (r *returned) belongs(state string) bool {
	return state != "" && subtle.ConstantTimeCompare([]byte(r.state), []byte(state)) == 1
}

// hostOf returns the host of a URL, for messages.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the authorization server"
	}
	return printable(u.Host)
}
