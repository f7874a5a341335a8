package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// callback is the path of our own redirect URLs.
const callback = "/callback"

// Bounds for requests: any program of this computer can send them.
const (
	requestTime    = 10 * time.Second
	maxConnections = 64
)

// target is a redirect URL that leads to this computer.
type target struct{ url *url.URL }

func (t target) URL() string { return t.url.String() }

// parseTarget parses the redirect URL that is wanted; empty: our own.
func parseTarget(want string) (target, error) {
	if want == "" {
		want = "http://127.0.0.1" + callback
	}
	u, err := url.Parse(want)
	if err != nil {
		return target{}, errors.New("the redirect URL cannot be read")
	}
	ip, err := netip.ParseAddr(u.Hostname())
	here := err == nil && ip.IsLoopback() || strings.EqualFold(u.Hostname(), "localhost")
	if !here || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(want, "#") {
		return target{}, fmt.Errorf("the redirect URL %s does not lead to this computer: write http://127.0.0.1:PORT/PATH", printable(u.Redacted()))
	}
	return target{u}, nil
}

// listen listens at the target, or at a free port if its port is taken or it has
// none: then it sets the port.
func (t target) listen() ([]net.Listener, error) {
	host, port := t.url.Hostname(), t.url.Port()
	hosts := []string{host}
	if strings.EqualFold(host, "localhost") {
		hosts = []string{"127.0.0.1"}
		// A browser may try the other address first, and must not find another program.
		if probe, err := net.Listen("tcp", "[::1]:0"); err == nil {
			_ = probe.Close()
			hosts = append(hosts, "::1")
		}
	}
	var failed error
	for range 8 { // a port can be free at one of the addresses only
		var listeners []net.Listener
		at := port
		failed = nil
		for _, h := range hosts {
			listener, err := net.Listen("tcp", net.JoinHostPort(h, at))
			if err != nil {
				failed = err
				break
			}
			listeners = append(listeners, listener)
			_, at, _ = net.SplitHostPort(listener.Addr().String())
		}
		if failed == nil {
			if at != t.url.Port() {
				t.url.Host = net.JoinHostPort(host, at)
			}
			return listeners, nil
		}
		closeAll(listeners)
		port = "0"
	}
	return nil, fmt.Errorf("listening for the browser: %w", failed)
}

func closeAll(listeners []net.Listener) {
	for _, listener := range listeners {
		_ = listener.Close()
	}
}

// path returns the path that requests have.
func (t target) path() string {
	if path := t.url.EscapedPath(); path != "" {
		return path
	}
	return "/"
}

// isHost reports whether the host of a request or of a URL is the target's. Browsers
// leave out port 80.
func (t target) isHost(host string) bool {
	return strings.EqualFold(host, t.url.Host) || strings.EqualFold(host, strings.TrimSuffix(t.url.Host, ":80"))
}

// The reasons why a redirect URL is not an answer to a sign-in.
var (
	errStale = errors.New("it belongs to another sign-in: use the page that was opened last")
	errBare  = errors.New("it has neither a code nor an error in it")
)

// answers returns what a redirect URL says, if it is an answer to the sign-in with
// this state.
func answers(redirect, state string) (*returned, error) {
	r, err := readAnswer(redirect)
	switch {
	case err != nil:
		return nil, err
	case !r.belongs(state):
		return nil, errStale
	case r.code == "" && r.refused == nil:
		return nil, errBare
	}
	return r, nil
}

// stateOf returns the state in the address of an authorization request.
func stateOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Query().Get("state")
}

// Loopback returns a redirect to this computer (RFC 8252, section 7.3): to the URL
// want, or with a free port if the port of want is taken or not given, or if want
// is empty. visit sends a person to an address, without waiting for the browser.
//
// Only an answer with the state of that address ends the wait. Requests without it
// can come from any program and any page.
func Loopback(want string, visit func(ctx context.Context, address string) error) (Redirect, error) {
	t, err := parseTarget(want)
	if err != nil {
		return nil, err
	}
	listeners, err := t.listen()
	if err != nil {
		return nil, err
	}
	l := &loopback{target: t, visit: visit, back: make(chan string, 1)}
	l.server = &http.Server{
		Handler: l, ReadHeaderTimeout: requestTime, ReadTimeout: requestTime, WriteTimeout: requestTime,
		MaxHeaderBytes: longestRedirect, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	l.server.SetKeepAlivesEnabled(false)
	for _, listener := range listeners {
		l.serving.Go(func() { _ = l.server.Serve(netutil.LimitListener(listener, maxConnections)) }) // until Close
	}
	return l, nil
}

// loopback is a Redirect that listens.
type loopback struct {
	target
	visit   func(ctx context.Context, address string) error
	server  *http.Server
	serving sync.WaitGroup
	back    chan string // what ends the wait, once

	mu    sync.Mutex
	state string // of the sign-in; empty: it has not begun
	over  bool   // there is an answer
}

// Close stops listening. The page about the answer has been sent then.
func (l *loopback) Close() error {
	err := l.server.Close()
	l.serving.Wait()
	return err
}

func (l *loopback) Visit(ctx context.Context, address string) (string, error) {
	l.mu.Lock()
	l.state = stateOf(address)
	l.mu.Unlock()
	if err := l.visit(ctx, address); err != nil {
		return "", err
	}
	select {
	case back := <-l.back:
		return back, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// ServeHTTP answers the browser.
func (l *loopback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !l.isHost(r.Host): // a name of others that was made to lead here
		brief(w, http.StatusForbidden)
		return
	case r.URL.EscapedPath() != l.path():
		brief(w, http.StatusNotFound)
		return
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		brief(w, http.StatusMethodNotAllowed)
		return
	}
	redirect := "http://" + l.url.Host + r.URL.RequestURI()
	l.mu.Lock()
	got, err := answers(redirect, l.state)
	over := l.over
	l.over = over || err == nil
	l.mu.Unlock()
	switch {
	case err != nil:
		page{http.StatusBadRequest, "Not the sign-in that Sallyport waits for", []string{
			"This page may be from an earlier attempt. Close it, and use the page that was opened last.",
		}}.write(w)
		return
	case over:
		page{http.StatusConflict, "This sign-in is over", []string{"Sallyport has received an answer already. You can close this page."}}.write(w)
		return
	case got.refused != nil:
		page{http.StatusOK, "Not signed in", []string{
			"The authorization server refused: " + got.refused.Error(),
			"You can close this page. To try again, sign in again where you began.",
		}}.write(w)
	default:
		page{http.StatusOK, "You can close this page", []string{
			"Sallyport has received the answer. Where you began shows whether you are signed in.",
		}}.write(w)
	}
	l.back <- redirect
}

// Pasted returns a redirect for a browser on another computer, to the URL want or, if
// that is empty or names no port, with any port of this computer. Nothing listens
// there: the browser shows that it cannot reach the page. paste sends a person to an
// address, and returns the address of that page as they paste it.
func Pasted(want string, paste func(ctx context.Context, address string) (string, error)) (Redirect, error) {
	t, err := parseTarget(want)
	if err != nil {
		return nil, err
	}
	if t.url.Port() == "" {
		listeners, err := t.listen()
		if err != nil {
			return nil, err
		}
		closeAll(listeners)
	}
	return &pasted{t, paste}, nil
}

// pasted is a Redirect that a person brings back.
type pasted struct {
	target
	paste func(ctx context.Context, address string) (string, error)
}

func (p *pasted) Close() error { return nil }

func (p *pasted) Visit(ctx context.Context, address string) (string, error) {
	line, err := p.paste(ctx, address)
	if err != nil {
		return "", err
	}
	redirect, err := p.read(line)
	if err != nil {
		return "", err
	}
	if _, err := answers(redirect, stateOf(address)); err != nil {
		return "", fmt.Errorf("the address that was pasted is not the answer to this sign-in: %w", err)
	}
	return redirect, nil
}

// read returns the redirect URL in what was pasted. Browsers do not show the scheme,
// and some authorization servers add a fragment.
func (p *pasted) read(line string) (string, error) {
	line = strings.Trim(strings.TrimSpace(line), `"'<>`)
	if len(line) > longestRedirect {
		return "", errors.New("what was pasted is too long for an address")
	}
	if !strings.Contains(line, "://") {
		line = "http://" + line
	}
	u, err := url.Parse(line)
	if err != nil || u.Scheme != "http" || u.User != nil || !p.isHost(u.Host) || u.EscapedPath() != p.path() && u.EscapedPath() != p.url.EscapedPath() {
		return "", fmt.Errorf("what was pasted is not the address of the page at the end: it begins with %s?", p.URL())
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String(), nil
}
