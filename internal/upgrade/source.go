package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Releases is where the project's releases are. Another place has the same
// layout: latest/download/FILE and download/v1.2.3/FILE.
const Releases = "https://github.com/sallyport/sallyport/releases"

// Limits of what a place may send.
const (
	maxSmall     = 64 << 10
	maxArchive   = 256 << 20
	maxRedirects = 10
	maxHeader    = 1 << 20
)

// A source opens the files of releases. An empty version is the newest release.
type source interface {
	open(ctx context.Context, version, name string) (body io.ReadCloser, size int64, err error)
}

// errAbsent reports a file or release that a source does not have.
var errAbsent = errors.New("not found")

// fetch reads a small file of a release.
func fetch(ctx context.Context, s source, version, name string) ([]byte, error) {
	body, _, err := s.open(ctx, version, name)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxSmall+1))
	if err == nil && len(data) > maxSmall {
		err = errTooLarge
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// folder is a directory with the files of one release.
type folder string

func (f folder) open(_ context.Context, _, name string) (io.ReadCloser, int64, error) {
	path := filepath.Join(string(f), name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fmt.Errorf("%s: %w", path, errAbsent)
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s is not a file", path)
	}
	file, err := os.Open(path)
	return file, info.Size(), err
}

// site is a place on the web.
type site struct {
	base   *url.URL
	client *http.Client
	agent  string
	stall  time.Duration // the longest time without a byte
}

// newSource returns the source that from names: a URL, or else a directory.
func newSource(from, agent string, proxy func(*url.URL) (*url.URL, error)) (source, error) {
	if !strings.Contains(from, "://") {
		return folder(from), nil
	}
	base, err := url.Parse(strings.TrimRight(from, "/"))
	if err != nil {
		return nil, errors.New("the address of the releases is not a URL") // it may hold a password
	}
	if err := permitted(base); err != nil {
		return nil, err
	}
	const wait = time.Minute
	transport := &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if proxy == nil || isLoopback(r.URL.Hostname()) {
				return nil, nil
			}
			return proxy(r.URL)
		},
		DialContext:            (&net.Dialer{Timeout: wait / 3}).DialContext,
		TLSHandshakeTimeout:    wait / 3,
		ResponseHeaderTimeout:  wait,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true,
	}
	return &site{base: base, agent: agent, stall: wait, client: &http.Client{Transport: transport, CheckRedirect: checkRedirect}}, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// permitted refuses addresses that would be read unprotected over a network.
func permitted(u *url.URL) error {
	switch {
	case u.Scheme == "https" && u.Host != "", u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return fmt.Errorf("plain http to %s is not allowed: use https", u.Host)
	}
	return fmt.Errorf("the address %s is not usable: want https://HOST/PATH or a directory", u.Redacted())
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return fmt.Errorf("redirected from https to %s://%s: not followed", r.URL.Scheme, r.URL.Host)
	}
	return permitted(r.URL)
}

func (s *site) open(ctx context.Context, version, name string) (io.ReadCloser, int64, error) {
	at := s.base.JoinPath("latest", "download", name)
	if version != "" {
		at = s.base.JoinPath("download", "v"+version, name)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, 0, err
	}
	r.Header.Set("User-Agent", s.agent)
	resp, err := s.client.Do(r)
	if err != nil {
		err = cause(ctx, err)
		cancel(nil)
		return nil, 0, err
	}
	b := &body{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, stall: s.stall}
	b.timer = time.AfterFunc(s.stall, func() { cancel(fmt.Errorf("%s sent nothing for %v", at.Host, s.stall)) })
	switch resp.StatusCode {
	case http.StatusOK:
		return b, resp.ContentLength, nil
	case http.StatusNotFound, http.StatusGone:
		err = errAbsent
	default:
		err = fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	b.Close()
	return nil, 0, fmt.Errorf("%s: %w", at.Redacted(), err)
}

// cause returns why a request ended, without what the URL library wraps around it.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

// body is the body of an answer that ends when no byte comes for too long.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = cause(b.ctx, err)
	}
	b.timer.Reset(b.stall)
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
