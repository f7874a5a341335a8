package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/redact"
	"github.com/sallyport/sallyport/internal/terminal"
)

// Errors of a login. What is shown wraps one of them.
var (
	// ErrSignIn means that a person has to sign in.
	ErrSignIn = errors.New("the user has to sign in")
	// ErrHostile means that the server or its authorization server said something
	// that it must not say.
	ErrHostile = errors.New("refused")
)

// SignInError is an ErrSignIn that says at which login, why and how.
type SignInError struct {
	Login *Login
	why   string
}

func (e *SignInError) Error() string { return e.why + ": " + e.Remedy() }

// Remedy returns what the user can do.
func (e *SignInError) Remedy() string {
	return fmt.Sprintf("sign in with 'sallyport servers login %s'", terminal.ShellWord(e.Login.server.Name))
}

func (e *SignInError) Unwrap() error { return ErrSignIn }

// Login is the user's login at one server, which need not exist yet. Its methods
// are safe for concurrent use.
type Login struct {
	logins *Logins
	server Server
	key    string
	origin string
	*state
}

// Identity returns what the Logins at one server share, and no others.
func (l *Login) Identity() any { return l.state }

// state is what this process knows of a login besides its record.
type state struct {
	mu      sync.Mutex
	flight  *flight   // the renewal in progress
	failed  time.Time // when the last one failed
	nonce   string    // for proofs, of the server
	secrets []string  // the latest, for Redact
	redact  *redact.Set
	report  func(...string) // Options.Secret
}

// leastHidden is the length of the shortest secret that Hide removes: a shorter one
// may be part of anything.
const leastHidden = 8

// maxSecrets bounds the secrets that a process remembers of one login.
const maxSecrets = 16

// remember adds secrets to those that Redact removes.
func (s *state) remember(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secrets = slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" || slices.Contains(s.secrets, secret) })
	if len(secrets) == 0 {
		return
	}
	s.secrets = append(s.secrets, secrets...)
	s.secrets = slices.Clone(s.secrets[max(0, len(s.secrets)-maxSecrets):])
	s.redact = &redact.Set{} // without those that are forgotten
	s.redact.Add(s.secrets...)
	if s.report != nil {
		s.report(secrets...)
	}
}

// current returns the login's record, and nil if there is none.
func (l *Login) current(ctx context.Context) (*record, error) {
	r, err := l.logins.load(ctx, l.server.Keyring, l.key)
	if r == nil || err != nil {
		return nil, err
	}
	l.remember(r.Access, r.Refresh, r.ID, r.Party.Secret)
	if issuer := l.server.Client.Issuer; issuer != "" && issuer != r.Party.Issuer && r.Ended == "" {
		ended := *r
		ended.Ended = "the definition names another authorization server than the login's"
		return &ended, nil
	}
	return r, nil
}

// party returns the client of a record with the credentials that are not stored.
func (l *Login) party(r *record) *party {
	p, c := r.Party, l.server.Client
	p.Key, p.Algorithm = c.Key, c.Algorithm
	if c.ID != "" && c.ID == p.ID && c.Secret != "" {
		p.Secret = c.Secret
	}
	return &p
}

// signIn returns an error that asks the user to sign in.
func (l *Login) signIn(why string) error { return &SignInError{l, why} }

// ended is signIn for a login that has ended.
func (l *Login) ended(why string) error {
	return l.signIn(fmt.Sprintf("the login at server %q has ended: %s", l.server.Name, why))
}

// Authorize adds the login's token to a request, and renews it first if it has
// expired: one process at a time. A request to another origin than the server's is
// left as it is. used identifies the token, for Refused; it is empty if none was
// added. An error means that the request must not be sent.
func (l *Login) Authorize(r *http.Request) (used string, err error) {
	if originOf(r.URL) != l.origin {
		return "", nil
	}
	rec, err := l.usable(r.Context())
	if rec == nil || err != nil {
		return "", err
	}
	kind := typeBearer
	if rec.DPoP {
		l.mu.Lock()
		nonce := l.nonce
		l.mu.Unlock()
		proof, err := l.party(rec).proof(r.Method, r.URL.String(), rec.Access, nonce)
		if err != nil {
			return "", err
		}
		r.Header.Set("DPoP", proof)
		kind = typeDPoP
	}
	r.Header.Set("Authorization", kind+" "+rec.Access)
	return identify(rec.Access), nil
}

// usable returns a record with a token that can be used, and nil if the request is
// to be sent without one.
func (l *Login) usable(ctx context.Context) (*record, error) {
	rec, err := l.current(ctx)
	if err != nil {
		return nil, err
	}
	person := l.server.Client.Grant == Person
	now := l.logins.now()
	switch {
	case rec == nil && person:
		return nil, nil
	case rec == nil:
		rec, err := l.renew(ctx, "", challenge{}, nil)
		var refused *refusedError
		if err != nil && ctx.Err() == nil && !errors.As(err, &refused) && !errors.Is(err, ErrSignIn) && !errors.Is(err, ErrHostile) {
			// The server's answer to a request without a token says more.
			l.logins.opts.Log.Debug("no token before a first request", "server", l.server.Name, "error", err)
			return nil, nil
		}
		return rec, err
	case rec.Ended != "" && person:
		return nil, l.ended(rec.Ended)
	case rec.Ended == "" && rec.expired(now) && person && rec.Refresh == "":
		return nil, l.signIn(fmt.Sprintf("the login at server %q has expired", l.server.Name))
	case rec.Ended == "" && (!rec.due(now) || !rec.expired(now) && (person && rec.Refresh == "" || l.failedAt(now))):
		return rec, nil
	}
	next, err := l.renew(ctx, identify(rec.Access), challenge{}, nil)
	if err != nil && rec.Ended == "" && !rec.expired(l.logins.now()) && !errors.Is(err, ErrSignIn) {
		l.logins.opts.Log.Warn("a login could not be renewed before its token expires", "server", l.server.Name, "error", err)
		return rec, nil
	}
	return next, err
}

// failedAt reports whether a renewal failed only now, so that another one can wait.
func (l *Login) failedAt(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.failed) < renewAgain
}

// Refused receives a server's answer with 401 or 403. It returns nil if another
// token is there now, with which the request is worth another try; callers try a
// request three times at most. Otherwise the error says what the user can do; it
// wraps ErrSignIn if that is to sign in.
func (l *Login) Refused(ctx context.Context, used string, status int, header http.Header) error {
	return l.refused(ctx, used, status, readChallenge(header))
}

func (l *Login) refused(ctx context.Context, used string, status int, c challenge) error {
	rec, err := l.current(ctx)
	if err != nil {
		return err
	}
	person := l.server.Client.Grant == Person
	switch {
	case rec != nil && rec.Ended == "" && identify(rec.Access) != used && !rec.expired(l.logins.now()):
		return nil // it is another one already
	case c.Error == "use_dpop_nonce" && rec != nil && rec.DPoP:
		return l.setNonce(c.Nonce)
	case c.Error == "insufficient_scope" && rec != nil:
		if !slices.ContainsFunc(c.Scopes, func(scope string) bool { return !slices.Contains(rec.Scopes, scope) }) {
			return fmt.Errorf("server %q refused the request, for which its login has too few rights (status %d); it names no scope that the login does not have", l.server.Name, status)
		}
		if person {
			return l.want(ctx, c.Scopes)
		}
		_, err := l.renew(ctx, used, c, union(rec.Scopes, c.Scopes))
		return err
	case status != http.StatusUnauthorized:
		return fmt.Errorf("server %q refused the request (status %d)", l.server.Name, status)
	case rec == nil && person:
		return l.signIn(fmt.Sprintf("server %q needs a login", l.server.Name))
	case person && rec.Ended == "" && rec.fresh(l.logins.now()):
		return l.signIn(fmt.Sprintf("server %q does not accept the token that its authorization server has just issued", l.server.Name))
	}
	_, err = l.renew(ctx, used, c, nil)
	return err
}

// setNonce sets the nonce of later proofs.
func (l *Login) setNonce(nonce string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !visible(nonce, maxText) {
		return fmt.Errorf("server %q does not accept the proof for its token", l.server.Name)
	}
	l.nonce = nonce
	return nil
}

// want notes scopes that the server asks for, and returns the error that says so.
func (l *Login) want(ctx context.Context, scopes []string) error {
	unlock, err := l.logins.lockWithin(ctx, l.key)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := l.current(ctx)
	if err != nil {
		return err
	}
	if rec != nil {
		next := *rec
		next.Wanted = union(rec.Wanted, scopes)
		if len(next.Wanted) > len(rec.Wanted) {
			if err := l.logins.save(ctx, l.server.Keyring, l.key, &next); err != nil {
				return err
			}
		}
	}
	return l.signIn(fmt.Sprintf("server %q needs more rights for this request (%s)", l.server.Name, printable(strings.Join(scopes, " "))))
}

// union returns the members of two lists of scopes, each once. There may be too many.
func union(a, b []string) []string {
	var all []string
	for _, scope := range slices.Concat(a, b) {
		if scope != "" && !slices.Contains(all, scope) && len(all) < maxScopes {
			all = append(all, scope)
		}
	}
	return all
}

// Hide removes the token that requests carry from a result of the server. It is
// cheap if the token is not there.
func (l *Login) Hide(result []byte) []byte {
	l.mu.Lock()
	secrets := l.secrets
	l.mu.Unlock()
	for _, secret := range secrets {
		if len(secret) >= leastHidden && bytes.Contains(result, []byte(secret)) {
			result = bytes.ReplaceAll(result, []byte(secret), []byte(redact.Mask))
		}
	}
	return result
}

// Redact removes the login's tokens from a string.
func (l *Login) Redact(text string) string {
	c := &l.server.Client
	l.remember(c.Secret, c.Assertion, c.IdP.ClientSecret)
	l.mu.Lock()
	set := l.redact
	l.mu.Unlock()
	if set == nil {
		return text
	}
	return set.Text(text)
}
