package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"
)

const (
	dialTimeout      = 30 * time.Second
	maxHeaderBytes   = 256 << 10
	maxRedirects     = 5
	idleConnections  = 16
	idleConnection   = 90 * time.Second
	maxCertificates  = 4 << 20
	handshakeTimeout = 30 * time.Second
)

// TLS holds the TLS options of a definition. The zero value checks a server's
// certificate against the system's authorities.
type TLS struct {
	CAFile            string // authorities to trust besides the system's
	CertFile, KeyFile string // what we show to the server
	ServerName        string
	Insecure          bool // the certificate is not checked
}

// Network makes connections to the user's servers.
type Network struct {
	proxy     func(*url.URL) (*url.URL, error)
	plainHTTP []string
	resolver  *net.Resolver // nil: the system's
	certFile  string        // SSL_CERT_FILE
	certDir   string        // SSL_CERT_DIR
	identity  []string      // see Identity

	mu      sync.Mutex
	proxies map[string]bool // host:port of proxies in use
}

// NewNetwork reads proxies and authorities from environ ("NAME=value"). plainHTTP has patterns
// of hosts to which plain HTTP is allowed besides loopback.
func NewNetwork(environ, plainHTTP []string) *Network {
	get := func(names ...string) string {
		value := ""
		for _, name := range names {
			for _, entry := range environ {
				if v, ok := strings.CutPrefix(entry, name+"="); ok && v != "" {
					value = v
				}
			}
			if value != "" {
				return value
			}
		}
		return value
	}
	config := &httpproxy.Config{
		HTTPProxy:  get("HTTP_PROXY", "http_proxy"),
		HTTPSProxy: get("HTTPS_PROXY", "https_proxy"),
		NoProxy:    get("NO_PROXY", "no_proxy"),
		CGI:        get("REQUEST_METHOD") != "",
	}
	n := &Network{
		proxy: config.ProxyFunc(), plainHTTP: plainHTTP, proxies: map[string]bool{},
		certFile: get(certFileVariable), certDir: get(certDirVariable),
	}
	n.identity = []string{config.HTTPProxy, config.HTTPSProxy, config.NoProxy, strconv.FormatBool(config.CGI), n.certFile, n.certDir}
	return n
}

// Identity returns what was taken from the environment. Networks with the same
// identity reach the same servers in the same way.
func (n *Network) Identity() []string { return n.identity }

// parse parses a server's URL and refuses what cannot or must not be used.
func (n *Network) parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil: // the error contains the URL
		return nil, refuse("the URL cannot be read")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, refuse("the URL must begin with https:// or http://")
	case u.Host == "" || u.Hostname() == "":
		return nil, refuse("the URL names no host")
	case strings.Contains(u.Hostname(), "${") || strings.Contains(text, "${"):
		return nil, refuse("the URL contains a variable that is not set")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, n.permits(u)
}

// permits refuses hosts that no server may have, and plain HTTP except to
// allowed hosts.
func (n *Network) permits(u *url.URL) error {
	if err := checkHost(u.Hostname()); err != nil {
		return err
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) && !n.allowsPlain(u.Hostname()) {
		return refuse("plain http to %s would send everything readable over the network: use https, or allow the host with the setting servers.plainHttp (--set servers.plainHttp=%[1]s)", u.Hostname())
	}
	return nil
}

// CheckURL returns the error that a connection to a definition's URL would
// return, as far as it is known before the host is resolved. It does not check
// a host that is still a variable.
func CheckURL(text string, plainHTTP []string) error {
	u, err := url.Parse(text)
	if err != nil { // the error contains the URL
		return refuse("the URL cannot be read")
	}
	if strings.Contains(u.Host, "${") {
		return nil
	}
	return (&Network{plainHTTP: plainHTTP}).permits(u)
}

func (n *Network) allowsPlain(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, pattern := range n.plainHTTP {
		if ok, err := path.Match(strings.ToLower(pattern), host); ok && err == nil {
			return true
		}
	}
	return false
}

// client returns an HTTP client for one server. The caller closes its idle
// connections.
func (n *Network) client(endpoint *url.URL, options TLS) (*http.Client, error) {
	config, err := n.tls(options)
	if err != nil {
		return nil, err
	}
	// A name such as localhost could resolve to anything.
	onlyLoopback := endpoint.Scheme == "http" && !n.allowsPlain(endpoint.Hostname())
	transport := n.transport(config, func(_ context.Context, _ string, to netip.Addr) error {
		if onlyLoopback && !to.Unmap().IsLoopback() {
			return refuse("plain http to %s, which is not this machine", to)
		}
		return nil
	})
	return &http.Client{Transport: transport, CheckRedirect: sameOrigin}, nil
}

// transport makes connections to the addresses that the guard and permits allow.
func (n *Network) transport(config *tls.Config, permits func(ctx context.Context, host string, to netip.Addr) error) *http.Transport {
	return &http.Transport{
		Proxy: n.proxyFor,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialer := &net.Dialer{Timeout: dialTimeout, Resolver: n.resolver}
			if n.isProxy(address) {
				return dialer.DialContext(ctx, network, address)
			}
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			dialer.ControlContext = func(ctx context.Context, _, address string, _ syscall.RawConn) error {
				to, err := netip.ParseAddrPort(address)
				if err != nil {
					return refuse("address %s cannot be read", address)
				}
				if err := permits(ctx, host, to.Addr()); err != nil {
					return err
				}
				return checkAddress(to.Addr())
			}
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    handshakeTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    idleConnections,
		IdleConnTimeout:        idleConnection,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ExpectContinueTimeout:  time.Second,
	}
}

// proxyFor chooses a proxy and remembers its address. The user chose it, so the
// guard does not check it.
func (n *Network) proxyFor(r *http.Request) (*url.URL, error) {
	// Requests to this machine never go through a proxy, whatever the name.
	if isLoopback(r.URL.Hostname()) {
		return nil, nil
	}
	proxy, err := n.proxy(r.URL)
	if proxy == nil || err != nil {
		if err != nil {
			return nil, errors.New("the proxy of the environment is not a usable URL") // it may hold a password
		}
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxies[hostPort(proxy)] = true
	return proxy, nil
}

func (n *Network) isProxy(address string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proxies[strings.ToLower(address)]
}

var ports = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = ports[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

func origin(u *url.URL) string { return u.Scheme + "://" + hostPort(u) }

// sameOrigin follows a redirect only within the origin of the request, and only
// if it repeats the request unchanged.
func sameOrigin(next *http.Request, before []*http.Request) error {
	first := before[0]
	switch {
	case origin(next.URL) != origin(first.URL):
		return refuse("the server redirects to another address, %s: put that into the definition if it is right", origin(next.URL))
	case next.Method != first.Method:
		return refuse("the server redirects in a way that loses the request")
	case len(before) > maxRedirects:
		return refuse("the server redirects in circles")
	}
	return nil
}

func (n *Network) tls(t TLS) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
	var err error
	if !t.Insecure {
		if config.RootCAs, err = n.authorities(); err != nil {
			return nil, err
		}
	}
	if t.CAFile != "" {
		pool := config.RootCAs
		if pool == nil {
			if pool, err = x509.SystemCertPool(); err != nil {
				pool = x509.NewCertPool()
			}
		}
		pem, err := readBounded(t.CAFile, maxCertificates)
		if err != nil {
			return nil, fmt.Errorf("caFile: %w", err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("caFile: %s holds no certificate in PEM form", t.CAFile)
		}
		config.RootCAs = pool
	}
	if t.CertFile != "" || t.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certFile and keyFile: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// readBounded reads a small regular file.
func readBounded(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	case info.Size() > limit:
		return nil, fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return os.ReadFile(name)
}
