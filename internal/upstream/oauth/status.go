package oauth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Status is a login without its secrets.
type Status struct {
	Server  string    `json:"server"`
	URL     string    `json:"url"`
	Issuer  string    `json:"issuer"`
	Account string    `json:"account,omitempty"` // as whom; empty: the server does not say
	Scopes  []string  `json:"scopes,omitempty"`
	Since   time.Time `json:"since"`
	Expires time.Time `json:"expires,omitzero"` // of the access token
	// Renewable means that the token is renewed without the user.
	Renewable bool `json:"renewable"`
	// Ended says why the user has to sign in again; empty: the login is good.
	Ended string `json:"ended,omitempty"`
	// Wanted are scopes that the server has asked for since.
	Wanted []string `json:"wanted,omitempty"`
}

// status returns a record without its secrets.
func (r *record) status(now time.Time) Status {
	s := Status{
		Server: r.Server, URL: r.URL, Issuer: r.Party.Issuer, Account: r.Account, Scopes: r.Scopes, Since: r.Since,
		Expires: r.Expires, Renewable: r.Refresh != "" || r.Grant != Person, Ended: r.Ended, Wanted: r.Wanted,
	}
	if s.Ended == "" && !s.Renewable && r.expired(now) {
		s.Ended = "its token has expired"
	}
	return s
}

// List returns what is known of all logins. Those that cannot be read are left out;
// the error says which.
func (l *Logins) List(ctx context.Context, keyring Keyring) ([]Status, error) {
	names, err := l.dir.List()
	if err != nil {
		return nil, err
	}
	var list []Status
	var errs []error
	for _, name := range names {
		key, ok := strings.CutSuffix(name, loginSuffix)
		if !ok {
			continue
		}
		r, err := l.load(ctx, keyring, key)
		if err != nil {
			errs = append(errs, err)
		}
		if r != nil {
			list = append(list, r.status(l.now()))
		}
	}
	return list, errors.Join(errs...)
}

// Status returns what is known of the login, and false if there is none.
func (l *Login) Status() (Status, bool, error) {
	r, err := l.current(context.Background()) // a keyring has a time limit of its own
	if r == nil || err != nil {
		return Status{}, false, err
	}
	return r.status(l.logins.now()), true, nil
}

// SignOut revokes the login's tokens at the authorization server, if that can be
// done, and forgets them in any case. revoked means that they are of no use to
// anyone; the error says what could not be done.
func (l *Login) SignOut(ctx context.Context) (revoked bool, err error) {
	if r, err := l.current(ctx); r == nil && err == nil {
		return false, nil
	}
	unlock, err := l.logins.lockWithin(ctx, l.key)
	if err != nil {
		return false, err
	}
	defer unlock()
	r, err := l.current(ctx)
	if err != nil {
		err = fmt.Errorf("the login is forgotten, but was not revoked: %w", err)
	}
	if r != nil && r.Party.Revocation != "" {
		revoked = true
		p := l.party(r)
		for _, token := range []struct{ value, hint string }{{r.Refresh, "refresh_token"}, {r.Access, "access_token"}} {
			if token.value == "" {
				continue
			}
			var refused *refusedError
			if failed := p.revoke(ctx, l.server.HTTP, token.value, token.hint); errors.As(failed, &refused) && refused.Code == "unsupported_token_type" {
				continue // it ends with the other one
			} else if failed != nil {
				revoked, err = false, errors.Join(err, fmt.Errorf("the %s could not be revoked: %w", strings.ReplaceAll(token.hint, "_", " "), failed))
			}
		}
	}
	return revoked, errors.Join(err, l.logins.save(ctx, l.server.Keyring, l.key, nil))
}
