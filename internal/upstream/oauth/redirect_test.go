package oauth

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

const asked = "https://as.example/authorize?state=the-state"

// opened returns a loopback redirect whose sign-in has begun, and its end.
func opened(t *testing.T, want string) (*loopback, chan string) {
	t.Helper()
	visited, ended := make(chan struct{}), make(chan string, 1)
	r, err := Loopback(want, func(context.Context, string) error {
		close(visited)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		back, err := r.Visit(ctx, asked)
		if err != nil {
			back = "error: " + err.Error()
		}
		ended <- back
	}()
	<-visited
	t.Cleanup(func() {
		cancel()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if c, err := net.Dial("tcp", r.(*loopback).url.Host); err == nil {
			c.Close()
			t.Errorf("%s still listens", r.URL())
		}
	})
	return r.(*loopback), ended
}

func TestRedirectURLs(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	for _, tt := range []struct{ want, prefix, suffix string }{
		{"", "http://127.0.0.1:", "/callback"},
		{"http://127.0.0.1/callback", "http://127.0.0.1:", "/callback"},
		{"http://127.0.0.1:" + port + "/callback", "http://127.0.0.1:", "/callback"},
		{"http://localhost/a%2Fb", "http://localhost:", "/a%2Fb"},
		{"http://localhost:" + port + "/x", "http://localhost:", "/x"},
		{"http://127.0.0.2", "http://127.0.0.2:", ""},
	} {
		l, ended := opened(t, tt.want)
		if got := l.URL(); !strings.HasPrefix(got, tt.prefix) || !strings.HasSuffix(got, tt.suffix) || strings.Contains(got, ":"+port+"/") {
			t.Errorf("%q became %q, want %s…%s with another port than %s", tt.want, got, tt.prefix, tt.suffix, port)
		}
		if page := browse(l.URL() + "?state=the-state&code=c"); page.status != http.StatusOK {
			t.Errorf("%q: the page at the end is %+v, want 200", tt.want, page)
		}
		if got := <-ended; !strings.HasSuffix(got, "?state=the-state&code=c") {
			t.Errorf("%q: came back with %q", tt.want, got)
		}
	}
	for _, want := range []string{
		"https://127.0.0.1:1/callback", "http://example.com/callback", "http://0.0.0.0/callback", "http://localhost.example.com/", "http://10.0.0.1/",
		"http://127.0.0.1/callback#x", "http://127.0.0.1/callback#", "http://127.0.0.1/callback?x=1", "http://127.0.0.1/?", "http://me@127.0.0.1/", "sallyport://callback", "http://[", "/callback",
	} {
		if _, err := Loopback(want, nil); err == nil {
			t.Errorf("%q is accepted as a redirect to this computer", want)
		}
		if _, err := Pasted(want, nil); err == nil {
			t.Errorf("%q is accepted as a redirect that is pasted", want)
		}
	}
}

func TestLocalhostListensAtBothAddresses(t *testing.T) {
	if probe, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("needs IPv6: %v", err)
	} else {
		probe.Close()
	}
	l, _ := opened(t, "http://localhost/callback")
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := net.Dial("tcp", net.JoinHostPort(host, l.url.Port()))
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		c.Close()
	}
}

// TestOnlyTheAnswerEndsTheWait sends what is not the answer, then the answer.
func TestOnlyTheAnswerEndsTheWait(t *testing.T) {
	const good = "/callback?state=the-state&code=the-code"
	for _, tt := range []struct {
		name, method, host, target string
		status                     int
	}{
		{"no state", "GET", "", "/callback?code=x", 400},
		{"another state", "GET", "", "/callback?state=other&code=x", 400},
		{"an empty state", "GET", "", "/callback?state=&code=x", 400},
		{"a state twice", "GET", "", "/callback?state=the-state&state=the-state&code=x", 400},
		{"an error of another sign-in", "GET", "", "/callback?state=other&error=access_denied", 400},
		{"no code", "GET", "", "/callback?state=the-state", 400},
		{"a broken query", "GET", "", "/callback?state=the-state&code=%zz", 400},
		{"the icon", "GET", "", "/favicon.ico", 404},
		{"another path", "GET", "", "/callback/?state=the-state&code=x", 404},
		{"a path that means the same", "GET", "", "/x/../callback?state=the-state&code=x", 404},
		{"an escaped path", "GET", "", "/%63allback?state=the-state&code=x", 404},
		{"a form", "POST", "", good, 405},
		{"only the header", "HEAD", "", good, 405},
		{"the options", "OPTIONS", "", good, 405},
		{"another host", "GET", "evil.example", good, 403},
		{"another port", "GET", "127.0.0.1:1", good, 403},
		{"another name of this computer", "GET", "localhost", good, 403},
		{"a URL", "GET", "127.0.0.1", "http://evil.example/callback?state=the-state&code=x", 403},
		{"10 MB", "GET", "", good + "&x=" + strings.Repeat("a", 10<<20), 431},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, ended := opened(t, "")
			host := tt.host
			if host == "" {
				host = l.url.Host
			}
			resp, body := raw(t, l.url.Host, tt.method+" "+tt.target+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			if resp.StatusCode != tt.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
			}
			if strings.Contains(body, "the-state") || strings.Contains(body, "the-code") {
				t.Errorf("the answer contains secrets: %s", body)
			}
			if tt.status != http.StatusRequestHeaderFieldsTooLarge { // which net/http answers
				checkHeader(t, resp.Header)
			}
			select {
			case got := <-ended:
				t.Fatalf("the wait ended with %q", got)
			default:
			}
			if page := browse("http://" + l.url.Host + good); page.status != http.StatusOK {
				t.Errorf("the answer got %+v, want 200", page)
			}
			if got, want := <-ended, l.URL()+"?state=the-state&code=the-code"; got != want {
				t.Errorf("came back with %q, want %q", got, want)
			}
		})
	}
}

// raw sends bytes and reads the response. Writing may fail when the server has seen
// enough.
func raw(t *testing.T, host, request string) (*http.Response, string) {
	t.Helper()
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _ = io.WriteString(c, request) }()
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func checkHeader(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	policy := h.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "script-src") {
		t.Errorf("the policy is %q", policy)
	}
}

func TestSecondAnswer(t *testing.T) {
	l, ended := opened(t, "")
	first, second := l.URL()+"?state=the-state&code=1", l.URL()+"?state=the-state&code=2"
	if page := browse(first); page.status != http.StatusOK {
		t.Errorf("the first got %+v, want 200", page)
	}
	if page := browse(second); page.status != http.StatusConflict || !strings.Contains(page.body, "This sign-in is over") {
		t.Errorf("the second got %+v, want 409", page)
	}
	if got := <-ended; got != first {
		t.Errorf("came back with %q, want %q", got, first)
	}
}

func TestPageOfARefusal(t *testing.T) {
	l, ended := opened(t, "")
	address := l.URL() + "?" + url.Values{
		"state": {"the-state"}, "error": {"<i>denied"}, "error_description": {`<script src=//evil.example>"'&` + "\u202e</script>"},
	}.Encode()
	resp, body := raw(t, l.url.Host, "GET "+strings.TrimPrefix(address, "http://"+l.url.Host)+" HTTP/1.1\r\nHost: "+l.url.Host+"\r\n\r\n")
	checkHeader(t, resp.Header)
	for _, bad := range []string{"<script", "<i>", "the-state", "\u202e", "href=\"http", "src="} {
		if strings.Contains(strings.ReplaceAll(body, "&lt;script src=", ""), bad) {
			t.Errorf("the page contains %q:\n%s", bad, body)
		}
	}
	if want := "The authorization server refused: &lt;i&gt;denied: &lt;script"; resp.StatusCode != 200 || !strings.Contains(body, want) {
		t.Errorf("the page (%d) does not contain %q:\n%s", resp.StatusCode, want, body)
	}
	if got := <-ended; got != address {
		t.Errorf("came back with %q, want %q", got, address)
	}
}

// TestSlowClients: connections that say nothing, or not all, delay neither the
// answer nor the end.
func TestSlowClients(t *testing.T) {
	l, ended := opened(t, "")
	for i := range maxConnections / 2 {
		c, err := net.Dial("tcp", l.url.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			if _, err := io.WriteString(c, "GET /callback?state=the-st"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if page := browse(l.URL() + "?state=the-state&code=c"); page.status != http.StatusOK {
		t.Errorf("the answer got %+v, want 200", page)
	}
	<-ended // and Close, at the end of the test
}

func TestBeforeAndWithoutAVisit(t *testing.T) {
	r, err := Loopback("", func(context.Context, string) error { return io.ErrClosedPipe })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, query := range []string{"", "?state=&code=c", "?code=c"} {
		if page := browse(r.URL() + query); page.status != http.StatusBadRequest {
			t.Errorf("%q before the visit: %+v, want 400", query, page)
		}
	}
	if _, err := r.Visit(t.Context(), asked); err != io.ErrClosedPipe {
		t.Errorf("error %v, want %v", err, io.ErrClosedPipe)
	}
	r, err = Loopback("", func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Visit(ctx, asked); err != context.Canceled {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestPasted(t *testing.T) {
	const base = "http://127.0.0.1:4711/callback"
	const good = base + "?state=the-state&code=the-code"
	for _, tt := range []struct{ name, line, want, fails string }{
		{"the address", good, good, ""},
		{"with white space", "  " + good + " \r\n", good, ""},
		{"in quotes", `"` + good + `"`, good, ""},
		{"in brackets", "<" + good + ">", good, ""},
		{"as the address bar shows it", strings.TrimPrefix(good, "http://"), good, ""},
		{"with a fragment", good + "#_=_", good, ""},
		{"an error answer", base + "?state=the-state&error=access_denied", base + "?state=the-state&error=access_denied", ""},
		{"nothing", "", "", "begins with " + base},
		{"only the code", "the-code", "", "begins with " + base},
		{"the address to visit", asked, "", "begins with " + base},
		{"another host", strings.Replace(good, "127.0.0.1", "evil.example", 1), "", "begins with"},
		{"a user's name", strings.Replace(good, "127.0.0.1", "127.0.0.1:4711@evil.example", 1), "", "begins with"},
		{"another port", strings.Replace(good, "4711", "4712", 1), "", "begins with"},
		{"another path", strings.Replace(good, "callback", "other", 1), "", "begins with"},
		{"another scheme", "https" + strings.TrimPrefix(good, "http"), "", "begins with"},
		{"no URL", "http://[", "", "begins with"},
		{"another state", base + "?state=other&code=the-code", "", "another sign-in"},
		{"no state", base + "?code=the-code", "", "another sign-in"},
		{"only the fragment", base + "#state=the-state&code=the-code", "", "another sign-in"},
		{"no code", base + "?state=the-state", "", "neither a code nor an error"},
		{"cut off", base, "", "another sign-in"},
		{"10 MB", good + strings.Repeat("a", 10<<20), "", "too long"},
	} {
		var sent string
		r, err := Pasted(base, func(_ context.Context, address string) (string, error) {
			sent = address
			return tt.line, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Visit(t.Context(), asked)
		if got != tt.want || (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s: %q, %v; want %q, and an error with %q", tt.name, got, err, tt.want, tt.fails)
		}
		if err != nil && strings.Contains(err.Error(), "the-code") {
			t.Errorf("%s: the error contains the code: %v", tt.name, err)
		}
		if sent != asked || r.URL() != base {
			t.Errorf("%s: sent to %q, URL %q", tt.name, sent, r.URL())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r, err := Pasted("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := url.Parse(r.URL()); err != nil || u.Hostname() != "127.0.0.1" || u.Port() == "" || u.Path != callback {
		t.Errorf("URL %q, want one with a port", r.URL())
	}
}

func FuzzAnswers(f *testing.F) {
	for _, s := range []string{"", "http://127.0.0.1:1/callback?state=s&code=c", "?state=s&error=e&error_description=%1b%5b", "?state=s&code=%0a", "?code=c&code=c", "#"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := answers(s, "s")
		if err != nil {
			return
		}
		if r.state != "s" || r.code == "" && r.refused == nil || strings.ContainsAny(r.code, "\r\n\x1b") {
			t.Errorf("%q: %+v", s, r)
		}
		if r.refused != nil && strings.ContainsAny(r.refused.Error(), "\r\n\x1b") {
			t.Errorf("%q: the refusal is %q", s, r.refused)
		}
	})
}

func FuzzPasted(f *testing.F) {
	for _, s := range []string{"", " <127.0.0.1:1/callback?state=s> ", "http://127.0.0.1:1/callback#x", "http://127.0.0.1:1@evil/callback"} {
		f.Add(s)
	}
	r, err := Pasted("http://127.0.0.1:1/callback", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := r.(*pasted).read(s)
		if err == nil && got != r.URL() && !strings.HasPrefix(got, r.URL()+"?") {
			t.Errorf("%q became %q", s, got)
		}
	})
}
