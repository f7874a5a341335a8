package remote

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestCheckAddress(t *testing.T) {
	allowed := []string{
		"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "fd12:3456::1", "fe00::1",
		"8.8.8.8", "2606:4700::1111", "100.64.0.1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "fd00:ec3::254",
	}
	refused := []string{
		"169.254.169.254", "169.254.170.2", "::ffff:169.254.169.254", "::169.254.169.254", "::ffff:0:169.254.169.254",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:1::5601:5601",
		"fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "168.63.129.16", "100.100.100.200", "192.0.0.192",
		"0.0.0.0", "0.1.2.3", "::", "::ffff:0.0.0.0", "64:ff9b::", "255.255.255.255", "240.0.0.1", "224.0.0.1", "ff02::1", "::ffff:224.0.0.1", "100::1",
	}
	for _, text := range allowed {
		if err := checkAddress(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range refused {
		if err := checkAddress(netip.MustParseAddr(text)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s is allowed", text)
		}
	}
	if err := checkAddress(netip.Addr{}); !errors.Is(err, ErrRefused) {
		t.Error("no address is allowed")
	}
}

func TestParseURL(t *testing.T) {
	n := NewNetwork(nil, []string{"mcp.lan", "10.1.*"})
	for text, want := range map[string]string{
		"https://example.com/mcp?key=k#part": "https://example.com/mcp?key=k",
		"http://localhost:3000/mcp":          "http://localhost:3000/mcp",
		"http://a.localhost/":                "http://a.localhost/",
		"http://[::1]:80/x":                  "http://[::1]:80/x",
		"http://127.0.0.1/":                  "http://127.0.0.1/",
		"http://MCP.lan./":                   "http://MCP.lan./",
		"http://10.1.2.3/":                   "http://10.1.2.3/",
	} {
		if u, err := n.parse(text); err != nil || u.String() != want {
			t.Errorf("%s: %v %v", text, u, err)
		}
	}
	for text, want := range map[string]string{
		"http://example.com/":                  "plain http to example.com",
		"http://10.2.0.1/":                     "plain http",
		"http://192.168.0.2.localhost.evil.io": "plain http",
		"https://169.254.169.254/latest":       "link-local",
		"http://169.254.169.254/latest":        "link-local",
		"https://[::ffff:a9fe:a9fe]/":          "link-local",
		"https://metadata.google.internal/":    "metadata",
		"https://Metadata.Google.Internal./":   "metadata",
		"ftp://example.com":                    "must begin with https",
		"file:///etc/passwd":                   "must begin with https",
		"https:///x":                           "names no host",
		"https://${HOST}/x":                    "cannot be read",
		"https://h/${PATH}":                    "variable that is not set",
		"https://h/\x00s3cret":                 "cannot be read",
		"":                                     "must begin with https",
	} {
		_, err := n.parse(text)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// resolver answers every name with the addresses of a list, one after another.
func resolver(t *testing.T, addresses ...string) *net.Resolver {
	asked := 0
	return resolverOf(t, func(string) string {
		asked++
		return addresses[min(asked, len(addresses))-1]
	})
}

// resolverOf answers a name with the address that a function returns.
func resolverOf(t *testing.T, address func(name string) string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		buffer := make([]byte, 4<<10)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				ip := netip.MustParseAddr(address(strings.TrimSuffix(q.Name.String(), ".")))
				m.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: ip.As4()},
				}}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	dialer := net.Dialer{}
	return &net.Resolver{PreferGo: true, Dial: func(ctx contextT, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// TestNamesThatLeadElsewhere: what counts is the address that is connected to,
// each time.
func TestNamesThatLeadElsewhere(t *testing.T) {
	server := httptest.NewServer(answering(`{"ok":1}`))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	at := func(scheme, host string) Target {
		return Target{URL: (&url.URL{Scheme: scheme, Host: net.JoinHostPort(host, itoa(port)), Path: "/"}).String()}
	}
	t.Run("a metadata service", func(t *testing.T) {
		n := NewNetwork(nil, []string{"*"})
		n.resolver = resolver(t, "169.254.169.254")
		if _, err := call(t, n, at("http", "innocent.example")); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "link-local") {
			t.Error(err)
		}
	})
	t.Run("rebinding", func(t *testing.T) {
		n := NewNetwork(nil, []string{"*"})
		n.resolver = resolver(t, "127.0.0.1", "169.254.169.254")
		c := streamable(t, n, at("http", "rebinding.example"), Options{})
		if _, err := c.Call(t.Context(), "first", nil); err != nil {
			t.Fatal(err)
		}
		c.client.CloseIdleConnections()
		if _, err := c.Call(t.Context(), "second", nil); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
	})
	t.Run("not loopback after all", func(t *testing.T) {
		n := NewNetwork(nil, nil)
		n.resolver = resolver(t, "10.9.8.7")
		if _, err := call(t, n, at("http", "x.localhost")); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "plain http to 10.9.8.7") {
			t.Error(err)
		}
	})
}

func TestProxies(t *testing.T) {
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.String()+" "+r.Header.Get("Proxy-Authorization"))
		answering(`{"by":"proxy"}`).ServeHTTP(w, r)
	}))
	defer proxy.Close()
	via := strings.Replace(proxy.URL, "http://", "http://user:s3cret@", 1)
	n := NewNetwork([]string{"HTTP_PROXY=" + via, "NO_PROXY=direct.example"}, []string{"*.example"})
	got, err := call(t, n, Target{URL: "http://far.example/mcp"})
	if err != nil || string(got) != `{"by":"proxy"}` || len(seen) != 1 || !strings.HasPrefix(seen[0], "http://far.example/mcp Basic ") {
		t.Errorf("%s %v %q", got, err, seen)
	}
	// What the URL says is looked at all the same.
	if _, err := call(t, n, Target{URL: "http://169.254.169.254/"}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	// A proxy is no way to this machine, whose plain HTTP it would see.
	n.resolver = resolver(t, "10.9.8.7")
	for _, host := range []string{"x.localhost", "localhost."} {
		if _, err := call(t, n, Target{URL: "http://" + host + ":9/mcp"}); err == nil || len(seen) != 1 {
			t.Errorf("%s: %v %q", host, err, seen)
		}
	}
	broken := NewNetwork([]string{"https_proxy=://s3cret"}, nil)
	if _, err := call(t, broken, Target{URL: "https://far.example/"}); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}
