package remote

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"
)

// The bounds of a request for signing in, with its redirects.
const (
	signInTime  = 30 * time.Second
	maxDocument = 1 << 20
)

// SignIn returns an HTTP client for requests to what a server names for signing
// in: its metadata and its authorization server. The server's own origin is
// reached as usual. For everything else these rules apply to each request and
// redirect, besides those for servers:
//
//   - Plain HTTP goes to loopback; to hosts that the configuration names only if
//     the server itself is reached in this way.
//   - An address on a private network is reached only if the server has one, too,
//     and this machine only if the server runs on it. What counts is the address
//     of a connection, for the server's as well; with a proxy it is what the URL
//     says.
//   - Of the TLS options, only the authorities of caFile apply. The client
//     certificate, the server name and "insecure" are for the server's own origin.
//
// Redirects never lead from https to http. Requests with a body or with an
// Authorization header are redirected only within their origin. A request takes at
// most 30 seconds, its response has at most 1 MB, and there are no cookies.
func (n *Network) SignIn(resource string, t TLS) (*http.Client, error) {
	u, err := n.parse(resource)
	if err != nil {
		return nil, err
	}
	own, err := n.client(u, t)
	if err != nil {
		return nil, err
	}
	config, err := n.tls(TLS{CAFile: t.CAFile})
	if err != nil {
		return nil, err
	}
	s := &signIn{network: n, resource: u, own: own.Transport.(*http.Transport)}
	s.others = n.transport(config, s.permits)
	return &http.Client{Transport: s, CheckRedirect: checkRedirect, Timeout: signInTime}, nil
}

// signIn is the transport of SignIn.
type signIn struct {
	network  *Network
	resource *url.URL
	own      *http.Transport // to the resource's origin
	others   *http.Transport

	mu    sync.Mutex
	known bool
	reach reach // the resource's, if known
}

// RoundTrip implements http.RoundTripper.
func (s *signIn) RoundTrip(r *http.Request) (*http.Response, error) {
	transport := s.own
	if origin(r.URL) != origin(s.resource) {
		transport = s.others
		if err := s.check(r.Context(), r.URL); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &boundedBody{ReadCloser: response.Body, left: maxDocument}
	return response, nil
}

// CloseIdleConnections is called by the method of http.Client.
func (s *signIn) CloseIdleConnections() {
	s.own.CloseIdleConnections()
	s.others.CloseIdleConnections()
}

// check checks a URL of another origin as far as possible before its host is
// resolved.
func (s *signIn) check(ctx context.Context, u *url.URL) error {
	host := u.Hostname()
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return refuse("the URL must begin with https:// or http://")
	case host == "":
		return refuse("the URL names no host")
	case u.User != nil:
		return refuse("the URL contains a user name")
	case s.network.isProxy(hostPort(u)): // to which connections are not guarded
		return refuse("host %s is the proxy of the environment", host)
	}
	if err := checkHost(host); err != nil {
		return err
	}
	if u.Scheme == "http" && !isLoopback(host) && !(s.isPlain() && s.network.allowsPlain(host)) {
		return refuse("plain http to %s, where https is required", host)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return s.permits(ctx, host, ip)
	}
	if isLoopback(host) {
		return s.allows(ctx, machine, host)
	}
	return nil
}

// isPlain reports whether the resource is reached with plain HTTP because the
// configuration allows it.
func (s *signIn) isPlain() bool {
	return s.resource.Scheme == "http" && s.network.allowsPlain(s.resource.Hostname())
}

// permits refuses addresses that the resource must not name.
func (s *signIn) permits(ctx context.Context, host string, to netip.Addr) error {
	at := reachOf(to)
	if isLoopback(host) && at != machine {
		return refuse("host %s has the address %s, which is not this machine", host, to)
	}
	if host != to.String() {
		host += " (" + to.String() + ")"
	}
	return s.allows(ctx, at, host)
}

// allows returns an error if the resource must not name a host with this reach.
func (s *signIn) allows(ctx context.Context, at reach, host string) error {
	if at == public {
		return nil
	}
	from, err := s.from(ctx)
	switch {
	case err != nil:
		return err
	case at <= from:
		return nil
	case at == machine:
		return refuse("host %s is this machine, which only a server on it may name", host)
	}
	return refuse("host %s is on a private network, which only a server on one may name", host)
}

// from returns the reach of the resource. It connects to the resource the first
// time, as requests do: a name that resolves to a private address is not enough,
// because whoever owns the name chooses the address. What answers there must have
// the resource's certificate, unless the definition says not to check that.
func (s *signIn) from(ctx context.Context) (reach, error) {
	host := s.resource.Hostname()
	if ip, err := netip.ParseAddr(host); err == nil {
		return reachOf(ip), nil
	}
	if isLoopback(host) {
		return machine, nil
	}
	proxy, err := s.network.proxyFor(&http.Request{URL: s.resource})
	if err != nil || proxy != nil {
		return public, err
	}
	s.mu.Lock()
	at, known := s.reach, s.known
	s.mu.Unlock()
	if known {
		return at, nil
	}
	if at, err = s.connect(ctx); err != nil {
		return public, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reach, s.known = at, true
	return at, nil
}

// connect returns the reach of the address that the resource is reached at.
func (s *signIn) connect(ctx context.Context) (reach, error) {
	ctx, cancel := context.WithTimeout(ctx, signInTime)
	defer cancel()
	conn, err := s.own.DialContext(ctx, "tcp", hostPort(s.resource))
	if err != nil {
		return public, err
	}
	defer conn.Close() //nolint:errcheck // nothing was written to it
	if s.resource.Scheme == "https" {
		config := s.own.TLSClientConfig.Clone()
		if config.ServerName == "" {
			config.ServerName = s.resource.Hostname()
		}
		if err := tls.Client(conn, config).HandshakeContext(ctx); err != nil {
			return public, err
		}
	}
	to, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return public, nil
	}
	return reachOf(to.AddrPort().Addr()), nil
}

// checkRedirect decides whether a redirect is followed.
func checkRedirect(next *http.Request, before []*http.Request) error {
	first, last := before[0], before[len(before)-1]
	switch {
	case len(before) > maxRedirects:
		return refuse("host %s redirects in circles", last.URL.Hostname())
	case last.URL.Scheme == "https" && next.URL.Scheme != "https":
		return refuse("host %s redirects from https to %s", last.URL.Hostname(), next.URL.Scheme)
	case next.Method != first.Method:
		return refuse("host %s redirects in a way that loses the request", last.URL.Hostname())
	case (first.Method != http.MethodGet || first.Header.Get("Authorization") != "") && origin(next.URL) != origin(first.URL):
		return refuse("host %s redirects a request with secrets to another address, %s", last.URL.Hostname(), origin(next.URL))
	}
	return nil
}

// boundedBody fails when more than what is left is read.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, refuse("the response is larger than %d bytes", maxDocument)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one more than allowed, to notice it
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, refuse("the response is larger than %d bytes", maxDocument)
	}
	return n, err
}
