package kaggle

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

const (
	dialTimeout   = 30 * time.Second
	maxRedirects  = 5
	stallTimeout  = 2 * time.Minute
	headerTimeout = 60 * time.Second
)

// validName is a user's name, or a slug, as it may stand in a path.
var validName = lazyregexp.New(`\A[A-Za-z0-9][A-Za-z0-9_-]{0,79}\z`)

// refusedError means that an address must not be contacted.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// parseBase checks the API's address.
func parseBase(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("want a URL such as " + defaultURL)
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return nil, errors.New("credentials go over https only, or to this machine")
	}
	return u, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// neverSent reports whether a request failed before anything of it was sent.
func neverSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	var handshake tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &dns) || errors.As(err, &handshake) || errors.As(err, &certificate)
}

func transport(proxy func(*url.URL) (*url.URL, error), control func(network, address string, c syscall.RawConn) error) *http.Transport {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout, Control: control}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	if proxy != nil {
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if isLoopback(r.URL.Hostname()) {
				return nil, nil
			}
			return proxy(r.URL)
		}
	}
	return t
}

// apiClient sends requests with credentials, to the API's host alone.
func apiClient(base *url.URL, proxy func(*url.URL) (*url.URL, error)) *http.Client {
	var control func(network, address string, c syscall.RawConn) error
	if base.Scheme == "http" {
		control = func(_, address string, _ syscall.RawConn) error {
			if to, err := netip.ParseAddrPort(address); err != nil || !to.Addr().Unmap().IsLoopback() {
				return &refusedError{"plain http to " + address + ", which is not this machine"}
			}
			return nil
		}
	}
	return &http.Client{
		Transport:     transport(proxy, control),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// storageClient follows URLs from the API's answers, without credentials, and
// refuses addresses that only this machine or its network can reach.
func storageClient(base *url.URL, proxy func(*url.URL) (*url.URL, error)) *http.Client {
	local := isLoopback(base.Hostname())
	control := func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return &refusedError{"address " + address + " cannot be read"}
		}
		ip := to.Addr().WithZone("").Unmap()
		if ip.IsLoopback() && local {
			return nil
		}
		if !ip.IsGlobalUnicast() || ip.IsPrivate() {
			return &refusedError{"address " + ip.String() + " is not a public address, so Kaggle's files cannot be there"}
		}
		return nil
	}
	if proxy != nil {
		// The user chooses the proxy's address; the proxy decides what it
		// connects to.
		through := proxy
		plain, guarded := transport(through, nil), transport(nil, control)
		return &http.Client{Transport: chooser{plain, guarded, through}, CheckRedirect: redirects(local)}
	}
	return &http.Client{Transport: transport(nil, control), CheckRedirect: redirects(local)}
}

// chooser uses a proxy for each URL that has one.
type chooser struct {
	proxied, direct *http.Transport
	proxy           func(*url.URL) (*url.URL, error)
}

func (c chooser) RoundTrip(r *http.Request) (*http.Response, error) {
	if p, err := c.proxy(r.URL); err == nil && p != nil && !isLoopback(r.URL.Hostname()) {
		return c.proxied.RoundTrip(r)
	}
	return c.direct.RoundTrip(r)
}

func (c chooser) CloseIdleConnections() {
	c.proxied.CloseIdleConnections()
	c.direct.CloseIdleConnections()
}

func redirects(local bool) func(*http.Request, []*http.Request) error {
	return func(next *http.Request, before []*http.Request) error {
		if len(before) > maxRedirects {
			return &refusedError{"redirects in circles"}
		}
		return checkStorage(next.URL, local)
	}
}

// checkStorage returns an error if a URL from the service must not be fetched.
func checkStorage(u *url.URL, local bool) error {
	switch {
	case u.Host == "" || u.User != nil:
		return &refusedError{"the URL of a file cannot be used"}
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && local && isLoopback(u.Hostname()):
		return nil
	}
	return &refusedError{"the URL of a file is not https"}
}

// download copies the file at a URL from the service to w, at most limit bytes.
// It sends no credentials.
func (c *client) download(ctx context.Context, link string, limit int64, w io.Writer) (int64, error) {
	u, err := url.Parse(link)
	if err != nil {
		return 0, &refusedError{"the URL of a file cannot be read"}
	}
	if err := checkStorage(u, isLoopback(c.base.Hostname())); err != nil {
		return 0, err
	}
	// A download may take any time, but must not stall.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stalled := time.AfterFunc(stallTimeout, cancel)
	defer stalled.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, &refusedError{"the URL of a file cannot be used"}
	}
	request.Header.Set("User-Agent", "sallyport")
	response, err := c.storage.Do(request)
	if err != nil {
		return 0, hide(err, nil)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, &apiError{call: "the download of a file", status: response.StatusCode}
	}
	var n int64
	buffer := make([]byte, 128<<10)
	for {
		got, err := response.Body.Read(buffer)
		stalled.Reset(stallTimeout)
		if n += int64(got); n > limit {
			return n, errTooLarge
		}
		if _, failed := w.Write(buffer[:got]); failed != nil {
			return n, failed
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, hide(err, nil)
		}
	}
	if response.ContentLength >= 0 && n != response.ContentLength {
		return n, fmt.Errorf("%d of %d bytes arrived", n, response.ContentLength)
	}
	return n, nil
}

var errTooLarge = errors.New("it is larger than the limit")
