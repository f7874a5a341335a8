package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSignIn(t *testing.T) {
	a := newAuthorizer(t)
	a.metadata = func(m map[string]any) {
		m["scopes_supported"] = []string{"read", "write", "openid", "offline_access"}
	}
	a.token = func(m map[string]any, q url.Values) {
		m["id_token"] = unsigned(map[string]any{
			"iss": a.URL, "aud": q.Get("client_id"), "exp": time.Now().Add(time.Hour).Unix(), "nonce": q.Get("nonce"), "email": "ann@example.com",
		})
	}
	l, b := a.at(t, Client{Scopes: []string{"read", "openid"}}), newBrowser()
	before := time.Now()
	status, err := l.SignIn(t.Context(), nil, b.open)
	if err != nil {
		t.Fatal(err)
	}
	if page := <-b.pages; page.status != http.StatusOK || !strings.Contains(page.body, "You can close this page") {
		t.Errorf("the page at the end is %+v, want 200 and that it can be closed", page)
	} else {
		a.noSecrets(t, "the page", page.body)
	}
	scopes := []string{"read", "openid", "offline_access"}
	if status.Account != "ann@example.com" || status.Issuer != a.URL || !slices.Equal(status.Scopes, scopes) || !status.Renewable ||
		status.Server != "docs" || status.Since.Before(before.Truncate(time.Second)) || status.Expires.Before(before.Add(time.Hour-time.Minute)) {
		t.Errorf("status %+v", status)
	}
	a.mu.Lock()
	q, form := a.authorized[0], a.tokens[0]
	a.mu.Unlock()
	for name, want := range map[string]string{"scope": "read openid offline_access", "prompt": "consent", "redirect_uri": b.urls[0]} {
		if got := q.Get(name); got != want {
			t.Errorf("authorization request: %s is %q, want %q", name, got, want)
		}
	}
	if len(q.Get("state")) < 22 || len(q.Get("nonce")) < 22 || q.Get("state") == q.Get("nonce") {
		t.Errorf("state %q and nonce %q are not random", q.Get("state"), q.Get("nonce"))
	}
	if form.Get("redirect_uri") != b.urls[0] || form.Get("resource") != a.URL+"/mcp" {
		t.Errorf("token request %v", form)
	}
	r, err := l.logins.load(t.Context(), nil, l.key)
	if err != nil || r == nil {
		t.Fatalf("the record is %v, %v", r, err)
	}
	if r.Access != accessToken || r.Refresh != refreshToken || r.Resource != a.URL+"/mcp" || r.Party.ID != "client-1" || r.DPoP {
		t.Errorf("record %+v", r)
	}

	// Again: with the registration of before, at its port.
	if _, err := l.SignIn(t.Context(), nil, b.open); err != nil {
		t.Fatal(err)
	}
	<-b.pages
	if b.opened[0] != "" || b.opened[1] != b.urls[0] || b.urls[1] != b.urls[0] {
		t.Errorf("wanted %q and opened %q, want the first URL again", b.opened, b.urls)
	}
	if registered, authorized, _ := a.counts(); registered != 1 || authorized != 2 {
		t.Errorf("%d registrations in %d sign-ins, want one", registered, authorized)
	}
	// The port is taken: another port, another registration.
	taken, err := net.Listen("tcp", strings.TrimSuffix(strings.TrimPrefix(b.urls[0], "http://"), callback))
	if err != nil {
		t.Skipf("the port is taken already: %v", err)
	}
	defer taken.Close()
	if _, err := l.SignIn(t.Context(), nil, b.open); err != nil {
		t.Fatal(err)
	}
	<-b.pages
	if registered, _, _ := a.counts(); registered != 2 || b.urls[2] == b.urls[0] {
		t.Errorf("%d registrations, redirects to %q; want two, and another port", registered, b.urls)
	}
}

// TestSignInRefusesAnswers: no code of a wrong answer is sent anywhere.
func TestSignInRefusesAnswers(t *testing.T) {
	set := func(name, value string) func(string) string { return with(func(q url.Values) { q.Set(name, value) }) }
	refusal := func(description string) func(string) string {
		return with(func(q url.Values) {
			q.Del("code")
			q.Set("error", "access_denied")
			q.Set("error_description", description)
		})
	}
	tests := []struct {
		name    string
		change  func(string) string
		hostile bool
		want    string
	}{
		{"another state", set("state", "another"), true, "another sign-in (state)"},
		{"no state", with(func(q url.Values) { q.Del("state") }), true, "another sign-in (state)"},
		{"a state that begins alike", func(s string) string { return with(func(q url.Values) { q.Set("state", q.Get("state")[:10]) })(s) }, true, "(state)"},
		{"two states", with(func(q url.Values) { q.Add("state", "another") }), true, "the parameter state twice"},
		{"another issuer", set("iss", "https://evil.example"), true, "the authorization server https://evil.example, not of"},
		{"an issuer that is only alike", with(func(q url.Values) { q.Set("iss", q.Get("iss")+"/") }), true, "(iss)"},
		{"no issuer, though promised", with(func(q url.Values) { q.Del("iss") }), true, "does not say which authorization server"},
		{"a refusal", refusal("the user said no"), false, "did not let this program in: access_denied: the user said no"},
		{"a refusal with markup", refusal("<b>no\x1b[31m\nway\u202e</b>"), false, `: <b>no\u{1b}[31m way\u{202e}</b>`},
		{"a long refusal", refusal(strings.Repeat("no ", 5000)), false, "…"},
		{"a refusal of another", func(s string) string { return set("iss", "https://evil.example")(refusal("trust me")(s)) }, true, "(iss)"},
		{"no code", with(func(q url.Values) { q.Del("code") }), true, "without a code"},
		{"two codes", with(func(q url.Values) { q.Add("code", "another") }), true, "the parameter code twice"},
		{"a code of two lines", set("code", "a\nb"), true, "other characters"},
		{"a long code", set("code", strings.Repeat("a", longestCode+1)), true, "too long"},
		{"10 MB", set("x", strings.Repeat("a", 10<<20)), true, "too long"},
		{"only a fragment", func(s string) string { return strings.Replace(s, "?", "#", 1) }, true, "(state)"},
		{"a broken query", func(s string) string { return s + "&x=%zz" }, true, "cannot be read"},
		{"no URL", func(string) string { return "http://[" }, true, "cannot be read"},
		{"nothing", func(string) string { return "" }, true, "(state)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAuthorizer(t)
			l := a.at(t, Client{})
			_, err := l.SignIn(t.Context(), nil, func(string) (Redirect, error) {
				return brought{"http://127.0.0.1:9" + callback, tt.change}, nil
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrHostile) != tt.hostile || len(err.Error()) > 700 {
				t.Fatalf("error %v, want one with %q; hostile: %t", err, tt.want, tt.hostile)
			}
			a.noSecrets(t, "the error", err.Error())
			if _, authorized, tokens := a.counts(); authorized != 1 || tokens != 0 {
				t.Errorf("%d authorization requests and %d token requests, want 1 and 0", authorized, tokens)
			}
			if r, err := l.logins.load(t.Context(), nil, l.key); r != nil || err != nil {
				t.Errorf("stored: %v, %v", r, err)
			}
		})
	}
}

// TestIssuerThatIsNotPromised: an authorization server need not say that its answers
// name it.
func TestIssuerThatIsNotPromised(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(url.Values)
		fails  bool
	}{
		{"none", func(q url.Values) { q.Del("iss") }, false},
		{"the right one", func(url.Values) {}, false},
		{"another", func(q url.Values) { q.Set("iss", "https://evil.example") }, true},
	} {
		a := newAuthorizer(t)
		a.metadata = func(m map[string]any) { delete(m, "authorization_response_iss_parameter_supported") }
		_, err := a.at(t, Client{}).SignIn(t.Context(), nil, func(string) (Redirect, error) {
			return brought{"http://127.0.0.1:9" + callback, with(tt.change)}, nil
		})
		if errors.Is(err, ErrHostile) != tt.fails || (err == nil) == tt.fails {
			t.Errorf("%s: error %v, want one: %t", tt.name, err, tt.fails)
		}
	}
}

func TestCodeIsUsedOnce(t *testing.T) {
	a := newAuthorizer(t)
	l := a.at(t, Client{})
	var code string
	open := func(string) (Redirect, error) {
		return brought{"http://127.0.0.1:9" + callback, with(func(q url.Values) {
			if code == "" {
				code = q.Get("code")
			}
			q.Set("code", code)
		})}, nil
	}
	if _, err := l.SignIn(t.Context(), nil, open); err != nil {
		t.Fatal(err)
	}
	_, err := l.SignIn(t.Context(), nil, open)
	if err == nil || !strings.Contains(err.Error(), "invalid_grant") || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Fatalf("error %v, want invalid_grant", err)
	}
	a.noSecrets(t, "the error", err.Error())
	if r, err := l.logins.load(t.Context(), nil, l.key); err != nil || r == nil || r.Access != accessToken {
		t.Errorf("the login of before is %v, %v; want it kept", r, err)
	}
}

func TestTokensOfTwoLines(t *testing.T) {
	for _, name := range []string{"access_token", "refresh_token"} {
		a := newAuthorizer(t)
		a.token = func(m map[string]any, _ url.Values) { m[name] = accessToken + "\r\nX-Evil: 1" }
		l, b := a.at(t, Client{}), newBrowser()
		_, err := l.SignIn(t.Context(), nil, b.open)
		<-b.pages
		if err == nil || strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("%s: error %v, want one", name, err)
			continue
		}
		a.noSecrets(t, "the error", err.Error())
		if r, _ := l.logins.load(t.Context(), nil, l.key); r != nil {
			t.Errorf("%s: stored %+v", name, r)
		}
	}
}

// TestMixedUp: an authorization server sends the browser on to an honest one, which
// answers this program. The code must not reach the first (RFC 9207, section 1).
func TestMixedUp(t *testing.T) {
	honest, evil := newAuthorizer(t), newAuthorizer(t)
	evil.metadata = func(m map[string]any) {
		// The best that it can do: promise nothing, and hope that nothing is checked.
		delete(m, "authorization_response_iss_parameter_supported")
		m["authorization_endpoint"] = evil.URL + "/onward"
	}
	evil.Config.Handler.(*http.ServeMux).HandleFunc("/onward", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		honest.mu.Lock()
		honest.clients["mine"] = q.Get("redirect_uri")
		honest.mu.Unlock()
		q.Set("tenant", "1")
		q.Set("client_id", "mine")
		q.Set("resource", honest.URL+"/mcp")
		http.Redirect(w, r, honest.URL+"/authorize?"+q.Encode(), http.StatusFound)
	})
	b := newBrowser()
	_, err := evil.at(t, Client{}).SignIn(t.Context(), nil, b.open)
	<-b.pages
	if want := "answer of the authorization server " + honest.URL + ", not of " + evil.URL; !errors.Is(err, ErrHostile) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, authorized, _ := honest.counts(); authorized != 1 {
		t.Errorf("the honest server was visited %d times, want once", authorized)
	}
	for name, a := range map[string]*authorizer{"honest": honest, "evil": evil} {
		if _, _, tokens := a.counts(); tokens != 0 {
			t.Errorf("the %s server got %d token requests, want none", name, tokens)
		}
	}
}

// TestTwoAtOnce: the answer of one sign-in, sent to the other, ends neither.
func TestTwoAtOnce(t *testing.T) {
	servers := []*authorizer{newAuthorizer(t), newAuthorizer(t)}
	urls := make([]chan string, 2)
	wrong := make(chan seen, 2)
	var crossed sync.WaitGroup
	for i, a := range servers {
		urls[i] = make(chan string, 2)
		crossed.Add(1)
		a.answer = func(redirect *url.URL, q url.Values) {
			wrong <- browse(<-urls[1-i] + "?" + q.Encode())
			crossed.Done()
			crossed.Wait() // neither sign-in ends before
		}
	}
	errs := make(chan error, 2)
	for i, a := range servers {
		l, b := a.at(t, Client{}), newBrowser()
		go func() {
			_, err := l.SignIn(t.Context(), nil, func(want string) (Redirect, error) {
				r, err := b.open(want)
				if err == nil {
					urls[i] <- r.URL()
				}
				return r, err
			})
			errs <- err
		}()
	}
	for range 2 {
		if page := <-wrong; page.status != http.StatusBadRequest {
			t.Errorf("the other's answer got %+v, want 400", page)
		}
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestRedirectURLOfTheDefinition(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, b := newAuthorizer(t), newBrowser()
	own := fmt.Sprintf("http://%s/here", taken.Addr())
	a.clients["by-hand"] = own
	l := a.at(t, Client{ID: "by-hand", RedirectURL: own})
	if _, err := l.SignIn(t.Context(), nil, b.open); err == nil || !strings.Contains(err.Error(), own+", whose port is not free") {
		t.Errorf("error %v, want that the port is not free", err)
	}
	taken.Close()
	if _, err := l.SignIn(t.Context(), nil, b.open); err != nil {
		t.Fatal(err)
	}
	<-b.pages
	if !slices.Equal(b.opened, []string{own, own}) || b.urls[1] != own {
		t.Errorf("wanted %q, opened %q; want %q", b.opened, b.urls, own)
	}
}

func TestSignInWithoutAPerson(t *testing.T) {
	a := newAuthorizer(t)
	_, err := a.at(t, Client{Grant: Credentials}).SignIn(t.Context(), nil, func(string) (Redirect, error) {
		t.Error("a redirect was opened")
		return nil, errors.New("opened")
	})
	if err == nil || !strings.Contains(err.Error(), "client_credentials") {
		t.Errorf("error %v, want one that names the grant", err)
	}
}

func TestRequestedScopes(t *testing.T) {
	before := &record{Party: party{Issuer: "https://as"}, Scopes: []string{"a", "b"}, Wanted: []string{"c", "a"}}
	for _, tt := range []struct {
		name      string
		client    []string
		asked     []string
		supported []string
		before    *record
		want      string
	}{
		{"nothing", nil, nil, nil, nil, ""},
		{"what the server asks for", nil, []string{"x", "y", "x"}, nil, nil, "x y"},
		{"the definition instead", []string{"z"}, []string{"x"}, nil, nil, "z"},
		{"what was granted and wanted", nil, []string{"x", "b"}, nil, before, "a b c x"},
		{"at another server", nil, []string{"x"}, nil, &record{Party: party{Issuer: "https://other"}, Scopes: []string{"a"}}, "x"},
		{"a refresh token", nil, []string{"x"}, []string{"x", "offline_access"}, nil, "x offline_access"},
		{"no refresh token", nil, []string{"x"}, []string{"x"}, nil, "x"},
	} {
		got := strings.Join(requestedScopes(&Server{Client: Client{Scopes: tt.client}}, &authority{Issuer: "https://as", Scopes: tt.asked, Supported: tt.supported}, tt.before), " ")
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestNonceOnlyWithOpenID(t *testing.T) {
	for _, scopes := range [][]string{nil, {"read"}, {"read", "openid"}} {
		v := visit{authority: &authority{Authorization: "https://as/authorize"}, party: &party{ID: "me"}, scopes: scopes}
		address, err := v.begin("http://127.0.0.1:9/callback")
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(address)
		if got, want := u.Query().Has("nonce"), slices.Contains(scopes, "openid"); got != want {
			t.Errorf("scopes %q: nonce %t, want %t", scopes, got, want)
		}
		if got := u.Query(); got.Has("scope") != (scopes != nil) || got.Has("prompt") || got.Has("resource") {
			t.Errorf("scopes %q: %v", scopes, got)
		}
	}
	for _, address := range []string{"javascript:alert(1)", "file:///etc/passwd", "https:", "https://as/#x", "://"} {
		v := visit{authority: &authority{Authorization: address}, party: &party{ID: "me"}}
		if got, err := v.begin("http://127.0.0.1:9/callback"); !errors.Is(err, ErrHostile) {
			t.Errorf("%s became %q, %v; want ErrHostile", address, got, err)
		}
	}
}

// away is a person who does not come back.
type away struct{ brought }

func (away) Visit(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := waitFor(t.Context(), away{}, ""); err == nil || !strings.Contains(err.Error(), "within 15 minutes") {
			t.Errorf("error %v, want that the time is over", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := waitFor(ctx, away{}, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}
