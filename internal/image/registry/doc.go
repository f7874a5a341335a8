// Package registry pulls images from OCI registries: over TLS, with the user's
// own credentials, and with every digest checked. A registry's responses are
// not trusted beyond that.
package registry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/image/flatten"
)

// Options configure a Client.
type Options struct {
	Credentials Credentials
	// PlainHTTP are patterns of hosts that may be contacted without TLS,
	// besides this machine.
	PlainHTTP []string
	// Proxy chooses a proxy, as http.Transport.Proxy does. It may be nil.
	Proxy func(*http.Request) (*url.URL, error)
	// MaxBytes bounds the layers of an image, as they arrive. Zero: 32 GiB.
	MaxBytes int64
	// TLS may be nil.
	TLS *tls.Config
	// UserAgent names the program.
	UserAgent string
	// Stall is how long an answer may make no progress. Zero: a minute.
	Stall time.Duration
	// Backoff is the time before the first of two repetitions; the second
	// waits three times as long. Zero: a second.
	Backoff time.Duration
}

// A Client pulls images. It is safe for concurrent use.
type Client struct {
	opts      Options
	transport http.RoundTripper
	close     func()
}

// New returns a client. It makes no requests yet.
func New(opts Options) *Client {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = flatten.DefaultLimits.Bytes
	}
	if opts.Stall == 0 {
		opts.Stall = time.Minute
	}
	if opts.Backoff == 0 {
		opts.Backoff = time.Second
	}
	base := &http.Transport{
		Proxy:                  opts.Proxy,
		DialContext:            (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        opts.TLS,
		TLSHandshakeTimeout:    20 * time.Second,
		ResponseHeaderTimeout:  opts.Stall,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConnsPerHost:    4,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: 1 << 20,
	}
	return &Client{opts: opts, transport: &guard{opts: &opts, base: base}, close: base.CloseIdleConnections}
}

// Close releases the client's idle connections.
func (c *Client) Close() { c.close() }

// errPlain reports a request that would go over the network unprotected.
var errPlain = errors.New("plain http is not allowed for this host: add it to the setting images.plainHttp if the network to it is trusted")

const maxRedirects = 10

var (
	// errDowngrade reports a redirect that would leave the protection of TLS.
	errDowngrade = errors.New("the registry redirects from https to plain http")
	errAnswer    = errors.New("the registry's answer has no end")
)

var errRedirects = fmt.Errorf("more than %d redirects", maxRedirects)

// guard refuses requests that must not leave this machine, and ends responses
// that stall.
type guard struct {
	opts *Options
	base http.RoundTripper
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.URL.Scheme {
	case "https":
	case "http":
		if !g.opts.plain(r.URL.Hostname()) {
			return nil, fmt.Errorf("%s: %w", r.URL.Host, errPlain)
		}
	default:
		return nil, fmt.Errorf("a registry cannot have the scheme %q", r.URL.Scheme)
	}
	// The client above follows as many as there are.
	first, n := r, 0
	for ; first.Response != nil && first.Response.Request != nil; first = first.Response.Request {
		if n++; n > maxRedirects {
			return nil, fmt.Errorf("%s: %w", r.URL.Host, errRedirects)
		}
	}
	// A remote registry must not reach this machine's services.
	if r.URL.Scheme == "http" && first.URL.Scheme == "https" {
		return nil, fmt.Errorf("%s: %w", r.URL.Host, errDowngrade)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	resp, err := g.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = newStallGuard(resp.Body, g.opts.Stall, ctx, cancel)
	if !strings.Contains(first.URL.Path, "/blobs/") { // whose readers know their sizes
		resp.Body = &shortBody{resp.Body, maxAnswer}
	}
	return resp, nil
}

// maxAnswer bounds the responses of a registry other than blobs.
const maxAnswer = 32 << 20

// shortBody is a response with a limit on its size, because not every reader
// has one.
type shortBody struct {
	io.ReadCloser
	left int64
}

func (s *shortBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.left -= int64(n); s.left < 0 {
		return 0, errAnswer
	}
	return n, err
}

// plain reports whether the host may be contacted over plain HTTP.
func (o *Options) plain(host string) bool {
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || host == "localhost" {
		return true
	}
	for _, pattern := range o.PlainHTTP {
		if ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(host)); err == nil && ok {
			return true
		}
	}
	return false
}

// stallGuard ends a response that makes no progress for too long.
type stallGuard struct {
	body interface {
		Read([]byte) (int, error)
		Close() error
	}
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
	once   sync.Once
}

func newStallGuard(body interface {
	Read([]byte) (int, error)
	Close() error
}, limit time.Duration, ctx context.Context, cancel context.CancelCauseFunc) *stallGuard {
	s := &stallGuard{body: body, ctx: ctx, cancel: cancel, limit: limit}
	s.timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("nothing arrived for %s", limit)) })
	return s
}

func (s *stallGuard) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.timer.Reset(s.limit)
	}
	if err != nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	return n, err
}

func (s *stallGuard) Close() error {
	err := s.body.Close()
	s.once.Do(func() {
		s.timer.Stop()
		s.cancel(nil)
	})
	return err
}
