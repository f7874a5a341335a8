package remote

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReach: an IPv4 address in an IPv6 address counts as well.
func TestReach(t *testing.T) {
	for text, want := range map[string]reach{
		"8.8.8.8": public, "203.0.113.7": public, "2606:4700::1111": public, "172.32.0.1": public, "100.128.0.1": public,
		"64:ff9b::808:808": public, "2002:808:808::1": public,
		"10.0.0.1": private, "172.16.0.1": private, "192.168.1.1": private, "100.64.0.1": private, "100.127.255.255": private,
		"fd12:3456::1": private, "fec0::1": private, "::ffff:10.0.0.1": private, "64:ff9b::a00:1": private, "2002:a00:1::1": private,
		"127.0.0.1": machine, "127.9.9.9": machine, "::1": machine, "::ffff:127.0.0.1": machine, "64:ff9b::7f00:1": machine,
	} {
		if got := reachOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %d, want %d", text, got, want)
		}
	}
}

// TestWhatAServerMayName: what is refused here was never connected to.
func TestWhatAServerMayName(t *testing.T) {
	names := map[string]string{
		"private.example": "10.0.0.1", "shared.example": "100.64.0.1", "machine.example": "127.0.0.1",
		"metadata.example": "169.254.169.254", "x.localhost": "10.0.0.1",
	}
	const (
		outside = "https://203.0.113.7/mcp"
		inside  = "https://10.0.0.5/mcp"
		here    = "https://127.0.0.1/mcp"
		plain   = "http://mcp.lan/mcp"
	)
	for _, test := range []struct{ resource, address, want string }{
		{outside, "https://private.example/", "private.example (10.0.0.1) is on a private network"},
		{outside, "https://shared.example/", "shared.example (100.64.0.1) is on a private network"},
		{outside, "https://192.168.1.1/", "host 192.168.1.1 is on a private network"},
		{outside, "https://[fd12::1]/", "host fd12::1 is on a private network"},
		{outside, "https://[64:ff9b::a00:1]/", "host 64:ff9b::a00:1 is on a private network"},
		{outside, "https://machine.example/", "machine.example (127.0.0.1) is this machine"},
		{outside, "https://localhost/", "localhost is this machine"},
		{outside, "http://localhost/", "localhost is this machine"},
		{outside, "https://127.0.0.1/", "127.0.0.1 is this machine"},
		{outside, "https://metadata.example/", "link-local"},
		{inside, "https://machine.example/", "machine.example (127.0.0.1) is this machine"},
		{inside, "http://127.0.0.1/", "127.0.0.1 is this machine"},
		{inside, "https://metadata.example/", "link-local"},
		{here, "https://metadata.example/", "link-local"},
		{here, "https://x.localhost/", "host x.localhost has the address 10.0.0.1, which is not this machine"},
		{here, "https://metadata.google.internal/", "metadata service"},
		{outside, "http://idp.example/", "plain http to idp.example, where https is required"},
		{outside, "http://idp.lan/", "plain http to idp.lan, where https is required"},
		{plain, "http://idp.example/", "plain http to idp.example, where https is required"},
		{outside, "https://user@idp.example/", "a user name"},
		{outside, "ftp://idp.example/", "must begin with https"},
		{outside, "file:///etc/passwd", "must begin with https"},
		{outside, "https:///", "names no host"},
	} {
		n := NewNetwork(nil, []string{"*.lan"})
		n.resolver = resolverOf(t, func(name string) string { return names[name] })
		client, err := n.SignIn(test.resource, TLS{})
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(test.address)
		if err == nil {
			_ = response.Body.Close()
		}
		var rule interface{ Rule() string }
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), test.want) || !errors.As(err, &rule) || !strings.Contains(rule.Rule(), test.want) {
			t.Errorf("%s at %s: got %v, want %q", test.address, test.resource, err, test.want)
		}
	}
	for _, test := range []struct {
		resource, host, to string
	}{
		{outside, "idp.example", "8.8.8.8"},
		{inside, "idp.example", "8.8.8.8"},
		{inside, "idp.example", "192.168.7.7"},
		{here, "idp.example", "192.168.7.7"},
		{here, "localhost", "127.0.0.1"},
		{"https://localhost/mcp", "idp.example", "127.0.0.1"},
	} {
		client, err := NewNetwork(nil, nil).SignIn(test.resource, TLS{})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Transport.(*signIn).permits(t.Context(), test.host, netip.MustParseAddr(test.to)); err != nil {
			t.Errorf("%s at %s for %s: got %v, want no error", test.host, test.to, test.resource, err)
		}
	}
	lan, err := NewNetwork(nil, []string{"*.lan"}).SignIn(plain, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lan.Transport.(*signIn).check(t.Context(), &url.URL{Scheme: "http", Host: "idp.lan"}); err != nil {
		t.Errorf("plain http for a server with plain http: got %v, want no error", err)
	}
	if _, err := NewNetwork(nil, nil).SignIn("http://mcp.example/", TLS{}); !errors.Is(err, ErrRefused) {
		t.Errorf("a resource with plain http: got %v, want %v", err, ErrRefused)
	}
}

// secure starts a server with TLS for example.com and 127.0.0.1, and returns its
// authority's file and its port.
func secure(t *testing.T, handler http.Handler) (caFile, port string) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return caFile, itoa(server.Listener.Addr().(*net.TCPAddr).Port)
}

// ask makes a request and reads the response.
func ask(client *http.Client, method, address string, body io.Reader) (string, error) {
	r, err := http.NewRequest(method, address, body)
	if err != nil {
		return "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return string(data), err
}

// TestReachOfAName: the name of a resource is as near as what answers there with
// its certificate.
func TestReachOfAName(t *testing.T) {
	ca, port := secure(t, answering(`{}`))
	for _, test := range []struct {
		name, resource, want string
		environ              []string
	}{
		{"reached on this machine", "https://example.com:" + port, "", nil},
		{"another's name that resolves to this machine", "https://evil.test:" + port, "certificate", nil},
		{"through a proxy", "https://example.com:" + port, "is this machine", []string{"HTTPS_PROXY=http://127.0.0.1:1"}},
	} {
		n := NewNetwork(test.environ, nil)
		n.resolver = resolver(t, "127.0.0.1")
		client, err := n.SignIn(test.resource+"/mcp", TLS{CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		err = client.Transport.(*signIn).permits(t.Context(), "idp.example", netip.MustParseAddr("127.0.0.1"))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestSignInRedirects(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	other := ""
	mux := http.NewServeMux()
	to := func(path string, status int, target func() string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target(), status) })
	}
	mux.HandleFunc("/document", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+string(data)+r.Header.Get("Cookie"))
	})
	to("/private", http.StatusFound, func() string { return "https://10.0.0.1/document" })
	to("/metadata", http.StatusFound, func() string { return "https://169.254.169.254/latest" })
	to("/down", http.StatusFound, func() string { return plain.URL })
	to("/file", http.StatusFound, func() string { return "file:///etc/passwd" })
	to("/circle", http.StatusFound, func() string { return "/circle" })
	to("/once", http.StatusFound, func() string { return other + "/document" })
	to("/lost", http.StatusSeeOther, func() string { return "/document" })
	to("/same", http.StatusTemporaryRedirect, func() string { return "/document" })
	to("/away", http.StatusTemporaryRedirect, func() string { return other + "/document" })
	mux.HandleFunc("/cookie", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "c", Value: "1"})
		http.Redirect(w, r, "/document", http.StatusFound)
	})
	ca, port := secure(t, mux)
	_, second := secure(t, mux)
	other = "https://example.com:" + second
	for _, test := range []struct {
		method, path, authorization string
		from                        reach
		answer, want                string
	}{
		{"GET", "/document", "", public, "GET ", ""},
		{"GET", "/private", "", public, "", "host 10.0.0.1 is on a private network"},
		{"GET", "/metadata", "", machine, "", "link-local"},
		{"GET", "/down", "", machine, "", "redirects from https to http"},
		{"GET", "/file", "", machine, "", "redirects from https to file"},
		{"GET", "/circle", "", machine, "", "redirects in circles"},
		{"GET", "/once", "", machine, "GET ", ""},
		{"GET", "/once", "", public, "", "example.com (127.0.0.1) is this machine"},
		{"GET", "/once", "Bearer s3cret", machine, "", "a request with secrets to another address"},
		{"GET", "/cookie", "", machine, "GET ", ""},
		{"POST", "/lost", "", machine, "", "loses the request"},
		{"POST", "/same", "", machine, "POST body", ""},
		{"POST", "/away", "", machine, "", "a request with secrets to another address"},
	} {
		n := NewNetwork(nil, nil)
		n.resolver = resolver(t, "127.0.0.1")
		client, err := n.SignIn("https://example.com:"+port+"/mcp", TLS{CAFile: ca})
		if err != nil {
			t.Fatal(err)
		}
		s := client.Transport.(*signIn)
		s.known, s.reach = true, test.from
		r, err := http.NewRequest(test.method, "https://example.com:"+port+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.method == "POST" {
			r, _ = http.NewRequest(test.method, r.URL.String(), strings.NewReader("body"))
		}
		if test.authorization != "" {
			r.Header.Set("Authorization", test.authorization)
		}
		response, err := client.Do(r)
		answer := ""
		if err == nil {
			data, readErr := io.ReadAll(response.Body)
			_ = response.Body.Close()
			answer, err = string(data), readErr
		}
		client.CloseIdleConnections()
		if answer != test.answer || (err == nil) != (test.want == "") || err != nil && !(errors.Is(err, ErrRefused) && strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %s: got %q, %v, want %q, %q", test.method, test.path, answer, err, test.answer, test.want)
		}
	}
}

// TestSignInBounds: a response is bounded whatever it is compressed to, and a slow
// one ends.
func TestSignInBounds(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/exact", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxDocument)) })
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/bomb", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(make([]byte, 8<<20))
		_ = z.Close()
		_, _ = w.Write(b.Bytes())
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{"))
		w.(http.Flusher).Flush()
		<-release
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release)
	client, err := NewNetwork(nil, nil).SignIn(server.URL, TLS{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	if got := client.Timeout; got != 30*time.Second {
		t.Errorf("a request may take %v, want 30s", got)
	}
	for path, want := range map[string]string{"/exact": "", "/endless": "larger than 1048576 bytes", "/bomb": "larger than 1048576 bytes"} {
		data, err := ask(client, "GET", server.URL+path, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || len(data) > maxDocument {
			t.Errorf("%s: got %d bytes, %v, want %q", path, len(data), err, want)
		}
	}
	client.Timeout = 10 * time.Millisecond
	var timeout net.Error
	if _, err := ask(client, "GET", server.URL+"/slow", nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a slow response: got %v, want a timeout", err)
	}
}

// TestSignInTLS: what a definition says about TLS is about its server, except for
// authorities.
func TestSignInTLS(t *testing.T) {
	shown := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, itoa(len(r.TLS.PeerCertificates))+" certificates")
	})
	ca, own := secure(t, shown)
	_, other := secure(t, shown)
	certFile, keyFile := pair(t)
	for _, test := range []struct {
		name       string
		tls        TLS
		own, other string // answers, or errors
	}{
		{"nothing", TLS{}, "unknown authority", "unknown authority"},
		{"authorities", TLS{CAFile: ca}, "0 certificates", "0 certificates"},
		{"not checked", TLS{Insecure: true}, "0 certificates", "unknown authority"},
		{"a certificate", TLS{CAFile: ca, CertFile: certFile, KeyFile: keyFile}, "1 certificates", "0 certificates"},
		{"another name", TLS{CAFile: ca, ServerName: "elsewhere.example"}, "not elsewhere.example", "0 certificates"},
	} {
		client, err := NewNetwork(nil, nil).SignIn("https://127.0.0.1:"+own+"/mcp", test.tls)
		if err != nil {
			t.Fatal(err)
		}
		for port, want := range map[string]string{own: test.own, other: test.other} {
			got, err := ask(client, "GET", "https://127.0.0.1:"+port+"/", nil)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s: got %q, want %q", test.name, got, want)
			}
		}
		client.CloseIdleConnections()
	}
}

// pair writes a certificate of a client and its key.
func pair(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TestSignInProxy: a proxy resolves names itself, so that only the URL counts.
func TestSignInProxy(t *testing.T) {
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Host)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	n := NewNetwork([]string{"HTTPS_PROXY=http://proxy.example:8080", "NO_PROXY=proxy.example"}, nil)
	named, err := n.SignIn("https://mcp.example/", TLS{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.proxyFor(&http.Request{URL: &url.URL{Scheme: "https", Host: "mcp.example"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(named, "GET", "https://proxy.example:8080/", nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is the proxy") {
		t.Errorf("the proxy itself: got %v, want %v", err, ErrRefused)
	}
	client, err := NewNetwork([]string{"HTTPS_PROXY=" + proxy.URL}, nil).SignIn("https://mcp.example/", TLS{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	if _, err := ask(client, "GET", "https://idp.example/", nil); err == nil || errors.Is(err, ErrRefused) || len(seen) != 1 || seen[0] != "idp.example:443" {
		t.Errorf("got %v, %q, want the proxy's error for idp.example:443", err, seen)
	}
	for _, host := range []string{"10.0.0.1", "127.0.0.1", "localhost"} {
		if _, err := ask(client, "GET", "https://"+host+"/", nil); !errors.Is(err, ErrRefused) || len(seen) != 1 {
			t.Errorf("%s: got %v, %q, want %v", host, err, seen, ErrRefused)
		}
	}
}
