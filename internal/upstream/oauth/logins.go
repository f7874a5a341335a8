package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// Options of Logins.
type Options struct {
	Log *slog.Logger
	// Metadata is the URL of a document about this client (a Client ID Metadata
	// Document), for authorization servers that read one. Empty: there is none.
	Metadata string
	// Secret receives tokens and secrets that become known, so that logs hide them.
	// It may be nil.
	Secret func(secrets ...string)
}

// Keyring is the operating system's store of secrets. Errors wrap
// errors.ErrUnsupported if there is none, and that of Get wraps fs.ErrNotExist if
// there is no such entry.
type Keyring interface {
	Get(ctx context.Context, name string) (string, error)
	Set(ctx context.Context, name, value string) error
}

// Logins are the user's logins at servers, and the registrations of this client
// at authorization servers, on disk. Its methods are safe for concurrent use.
type Logins struct {
	dir    store.Dir
	opts   Options
	now    func() time.Time
	sealer sealer
	cache  store.Cache[*record] // which are not changed

	mu     sync.Mutex
	states map[string]*state // by key
}

// New returns the logins in a directory, which need not exist.
func New(dir store.Dir, opts Options) *Logins {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Logins{dir: dir, opts: opts, now: time.Now, states: map[string]*state{}}
}

// At returns the login at a server. All Logins at one server share what they know of
// it; each uses the connections and the keyring of its own Server.
func (l *Logins) At(s Server) *Login {
	login := &Login{logins: l, server: s}
	login.key, login.origin = identity(&s)
	l.mu.Lock()
	defer l.mu.Unlock()
	login.state = l.states[login.key]
	if login.state == nil {
		login.state = &state{report: l.opts.Secret}
		l.states[login.key] = login.state
	}
	return login
}

// The storage of the package. Records and registrations are sealed; each file is
// replaced whole.

const (
	loginSuffix        = ".login"
	registrationSuffix = ".registration"
)

// identity returns the key of the record of a server, and the origin that its tokens
// are for; empty: its URL cannot be used.
func identity(s *Server) (key, origin string) {
	address := s.URL
	if u, err := url.Parse(s.URL); err == nil && u.Host != "" {
		origin = originOf(u)
		address = origin + cmp.Or(u.EscapedPath(), "/") + "?" + u.RawQuery
	}
	return digest("login", s.Name, address, s.Client.ID, string(s.Client.Grant), s.Client.IdP.Issuer), origin
}

// digest returns the name of a file for what identifies its content.
func digest(parts ...string) string {
	data, _ := json.Marshal(parts) // strings
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// originOf returns the origin of a URL, with its port.
func originOf(u *url.URL) string {
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	switch {
	case port != "":
	case scheme == "https":
		port = "443"
	case scheme == "http":
		port = "80"
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// lock waits until no other process changes the record or the registration with
// this key.
func (l *Logins) lock(key string) (unlock func(), err error) { return l.dir.Lock(digest("lock", key)) }

// lockWithin is lock until ctx is done.
func (l *Logins) lockWithin(ctx context.Context, key string) (unlock func(), err error) {
	type result struct {
		unlock func()
		err    error
	}
	locked := make(chan result)
	go func() {
		unlock, err := l.lock(key)
		select {
		case locked <- result{unlock, err}:
		case <-ctx.Done():
			if err == nil {
				unlock()
			}
		}
	}()
	select {
	case r := <-locked:
		return r.unlock, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("another process changes the login: %w", context.Cause(ctx))
	}
}

// load returns the record with a key, and nil if there is none. It must not be
// changed.
func (l *Logins) load(ctx context.Context, keyring Keyring, key string) (*record, error) {
	if !l.dir.Placed() {
		return nil, nil
	}
	name := key + loginSuffix
	r, err := l.cache.Get(l.dir, name, func() (*record, int64, error) {
		plain, err := l.read(ctx, keyring, name)
		if err != nil {
			return nil, 0, err
		}
		r, err := decodeRecord(plain)
		if err != nil {
			return nil, 0, l.damaged(name)
		}
		return r, int64(len(plain)), nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return r, err
}

// read returns the content of a sealed file. The error is fs.ErrNotExist only if
// the file does not exist.
func (l *Logins) read(ctx context.Context, keyring Keyring, name string) ([]byte, error) {
	data, err := l.dir.Read(name, maxSealed)
	if err != nil {
		if errors.Is(err, store.ErrTooLarge) {
			err = l.damaged(name)
		}
		return nil, err
	}
	return l.open(ctx, keyring, name, data)
}

// save replaces the record with a key; nil removes it.
func (l *Logins) save(ctx context.Context, keyring Keyring, key string, r *record) error {
	if r == nil {
		return l.remove(key + loginSuffix)
	}
	return l.write(ctx, keyring, key+loginSuffix, r)
}

func (l *Logins) write(ctx context.Context, keyring Keyring, name string, content any) error {
	plain, err := json.Marshal(content)
	if err != nil {
		return err
	}
	data, err := l.seal(ctx, keyring, name, plain)
	if err != nil {
		return err
	}
	if len(data) > maxSealed {
		return fmt.Errorf("the login takes more than %d bytes", maxSealed)
	}
	return l.dir.Write(name, data)
}

func (l *Logins) remove(name string) error {
	err := l.dir.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// registration returns this client's registration at an issuer, and nil if there
// is none, or if its secret has expired. keep replaces it; nil removes it.
func (l *Logins) registration(ctx context.Context, keyring Keyring, issuer string) (*party, error) {
	if !l.dir.Placed() {
		return nil, nil
	}
	name := registrationName(issuer)
	plain, err := l.read(ctx, keyring, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p, err := decodeParty(plain)
	switch {
	case err != nil, p.Issuer != issuer:
		return nil, l.damaged(name)
	case !p.Ends.IsZero() && !l.now().Before(p.Ends):
		return nil, nil
	}
	return p, nil
}

func (l *Logins) keep(ctx context.Context, keyring Keyring, issuer string, p *party) error {
	if p == nil {
		return l.remove(registrationName(issuer))
	}
	return l.write(ctx, keyring, registrationName(issuer), p)
}

func registrationName(issuer string) string {
	return digest("registration", issuer) + registrationSuffix
}
