package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
)

const (
	// renewBefore is how long before its end a token is renewed.
	renewBefore = 30 * time.Second
	// renewAgain is how long a renewal counts as the latest: after one that failed,
	// a token that is still good is used.
	renewAgain = 10 * time.Second
	// renewTimeout bounds a renewal with waiting for other processes.
	renewTimeout = 2 * time.Minute
)

// flight is a renewal in progress.
type flight struct {
	done chan struct{}
	rec  *record
	err  error
}

// renew returns a record with another token than the one that stale identifies: one
// that is stored meanwhile, or a new one. All callers of this process wait for one
// renewal, which goes on if they give up: an answer that is not read would cost the
// login, because refresh tokens can be used once. c and scopes are those of grant.
func (l *Login) renew(ctx context.Context, stale string, c challenge, scopes []string) (*record, error) {
	for {
		l.mu.Lock()
		f, first := l.flight, l.flight == nil
		if first {
			f = &flight{done: make(chan struct{})}
			l.flight = f
		}
		l.mu.Unlock()
		if first {
			go l.fly(context.WithoutCancel(ctx), f, stale, c, scopes)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if first || f.err != nil || identify(f.rec.Access) != stale {
			return f.rec, f.err
		}
		// It was for an older token than ours.
	}
}

// fly makes a renewal for all who wait for it.
func (l *Login) fly(ctx context.Context, f *flight, stale string, c challenge, scopes []string) {
	ctx, cancel := context.WithTimeoutCause(ctx, renewTimeout, fmt.Errorf("the login was not renewed within %s", renewTimeout))
	defer cancel()
	f.rec, f.err = l.renewLocked(ctx, stale, c, scopes)
	if f.rec != nil {
		l.remember(f.rec.Access, f.rec.Refresh)
	}
	l.mu.Lock()
	l.flight = nil
	if f.err != nil {
		l.failed = l.logins.now()
	}
	l.mu.Unlock()
	close(f.done)
}

// renewLocked is renew while no other process does the same.
func (l *Login) renewLocked(ctx context.Context, stale string, c challenge, scopes []string) (*record, error) {
	unlock, err := l.logins.lockWithin(ctx, l.key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	rec, err := l.current(ctx)
	if err != nil {
		return nil, err
	}
	person := l.server.Client.Grant == Person
	switch {
	case rec == nil && person:
		return nil, l.signIn(fmt.Sprintf("server %q needs a login", l.server.Name))
	case rec != nil && rec.Ended == "" && identify(rec.Access) != stale && !rec.expired(l.logins.now()):
		return rec, nil // another process was faster
	case rec != nil && rec.Ended != "" && person:
		return nil, l.ended(rec.Ended)
	case rec != nil && rec.Ended == "" && rec.Refresh != "" && scopes == nil:
		next, err := l.refresh(ctx, rec)
		if err == nil {
			return next, l.save(ctx, next)
		}
		over := l.over(ctx, rec, err)
		switch {
		case !over:
			return nil, fmt.Errorf("the login at server %q could not be renewed: %w", l.server.Name, err)
		case person:
			return nil, l.end(ctx, rec, fmt.Sprintf("its authorization server does not renew it (%s)", err))
		}
	case person && c.Error == "invalid_token":
		return nil, l.end(ctx, rec, "the server does not accept its token")
	case person:
		return nil, l.signIn(fmt.Sprintf("server %q does not accept the token of its login", l.server.Name))
	}
	if rec != nil && scopes == nil {
		scopes = rec.Scopes
	}
	next, err := l.grant(ctx, c, scopes)
	if err != nil {
		return nil, fmt.Errorf("there is no token for server %q: %w", l.server.Name, err)
	}
	next.Renewed, next.Grant = l.logins.now(), l.server.Client.Grant
	return next, l.save(ctx, next)
}

// save replaces the login's record with one that was renewed.
func (l *Login) save(ctx context.Context, next *record) error {
	if err := l.logins.save(ctx, l.server.Keyring, l.key, next); err != nil {
		return fmt.Errorf("the renewed login at server %q could not be saved: %w", l.server.Name, err)
	}
	return nil
}

// refresh uses the record's refresh token.
func (l *Login) refresh(ctx context.Context, rec *record) (*record, error) {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {rec.Refresh}}
	if rec.Resource != "" {
		form.Set("resource", rec.Resource)
	}
	got, err := l.party(rec).request(ctx, l.server.HTTP, form)
	if err != nil {
		return nil, err
	}
	next := rec.with(got, l.logins.now())
	return next, next.takeIdentity(&l.server, got)
}

// over reports whether an answer means that the login cannot be renewed any more. A
// registration that the authorization server does not know any more is forgotten.
func (l *Login) over(ctx context.Context, rec *record, err error) bool {
	var refused *refusedError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case "invalid_grant":
		return true
	case "invalid_client", "unauthorized_client":
		if l.server.Client.ID != "" {
			return false // the definition is wrong
		}
		if err := l.logins.keep(ctx, l.server.Keyring, rec.Party.Issuer, nil); err != nil {
			l.logins.opts.Log.Warn("a registration could not be removed", "issuer", rec.Party.Issuer, "error", err)
		}
		return true
	}
	return false
}

// end notes why the user has to sign in again.
func (l *Login) end(ctx context.Context, rec *record, why string) error {
	next := *rec
	next.Ended = why
	if err := l.logins.save(ctx, l.server.Keyring, l.key, &next); err != nil {
		l.logins.opts.Log.Warn("that a login has ended could not be saved", "server", l.server.Name, "error", err)
	}
	return l.ended(why)
}
