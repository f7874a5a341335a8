package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/sallyport/sallyport/internal/store"
)

func TestAuthorize(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for _, tt := range []struct {
		name    string
		change  func(r *record) // nil: there is no login
		address string          // empty: the resource
		issuer  string          // of the definition
		header  string
		err     string // with which the user has to sign in
		renewed bool
	}{
		{name: "no login"},
		{name: "a login", change: func(*record) {}, header: "Bearer access-0"},
		{name: "another path", change: func(*record) {}, address: "HTTPS://Docs.Example:443/other?x=1", header: "Bearer access-0"},
		{name: "another host", change: func(*record) {}, address: "https://docs.example.evil/mcp"},
		{name: "a host below", change: func(*record) {}, address: "https://a.docs.example/mcp"},
		{name: "another port", change: func(*record) {}, address: "https://docs.example:444/mcp"},
		{name: "another scheme", change: func(*record) {}, address: "http://docs.example/mcp"},
		{name: "a user's name before another host", change: func(*record) {}, address: "https://docs.example@evil.example/mcp"},
		{name: "a token without end", change: func(r *record) { r.Expires = time.Time{} }, header: "Bearer access-0"},
		{name: "soon expired", change: func(r *record) { r.Expires = time.Now().Add(renewBefore / 2) }, header: "Bearer access-1", renewed: true},
		{name: "soon expired, and cannot be renewed", change: func(r *record) { r.Refresh, r.Expires = "", time.Now().Add(renewBefore/2) }, header: "Bearer access-0"},
		{name: "expired, and cannot be renewed", change: func(r *record) { r.Refresh, r.Expires = "", time.Now() }, err: `the login at server "docs" has expired`},
		{name: "a short life, of which much is left", header: "Bearer access-0", change: func(r *record) {
			r.Renewed, r.Expires = time.Now().Add(-5*time.Second), time.Now().Add(15*time.Second)
		}},
		{name: "ended", change: func(r *record) { r.Ended = "it is over" }, err: "it is over"},
		{name: "at another authorization server than the definition's", change: func(*record) {}, issuer: "https://other.example", err: `names another authorization server`},
	} {
		as := newAuthServer(t)
		l := as.login(t, store.At(t.TempDir()), nil)
		l.server.Client.Issuer = tt.issuer
		if tt.change != nil {
			r := as.record(later)
			tt.change(r)
			if err := l.logins.save(t.Context(), nil, l.key, r); err != nil {
				t.Fatal(err)
			}
		}
		if tt.address == "" {
			tt.address = resource
		}
		header, used, err := authorize(t, l, tt.address)
		if header != tt.header || (used == "") != (tt.header == "") || strings.Contains(used, "access") {
			t.Errorf("%s: got header %q of token %q, want %q", tt.name, header, used, tt.header)
		}
		if errors.Is(err, ErrSignIn) != (tt.err != "") || err != nil && (!strings.Contains(err.Error(), tt.err) || !strings.HasSuffix(err.Error(), "sign in with 'sallyport servers login docs'")) {
			t.Errorf("%s: got %v, want %q and what to do", tt.name, err, tt.err)
		}
		if renewals := len(as.received("grant_type")); (renewals == 1) != tt.renewed || renewals > 1 {
			t.Errorf("%s: got %d renewals, want %v", tt.name, renewals, tt.renewed)
		}
	}
}

// TestKeys: what is another login, and what is the same.
func TestKeys(t *testing.T) {
	base := Server{Name: "docs", URL: resource}
	key, _ := identity(&base)
	for name, tt := range map[string]struct {
		change func(s *Server)
		same   bool
	}{
		"itself":            {func(*Server) {}, true},
		"with its port":     {func(s *Server) { s.URL = "HTTPS://docs.example:443/mcp#x" }, true},
		"another secret":    {func(s *Server) { s.Client.Secret = "x" }, true},
		"another name":      {func(s *Server) { s.Name = "docs2" }, false},
		"another path":      {func(s *Server) { s.URL += "/" }, false},
		"another query":     {func(s *Server) { s.URL += "?tenant=2" }, false},
		"another scheme":    {func(s *Server) { s.URL = "http://docs.example:443/mcp" }, false},
		"another client":    {func(s *Server) { s.Client.ID = "x" }, false},
		"another grant":     {func(s *Server) { s.Client.Grant = Credentials }, false},
		"another IdP":       {func(s *Server) { s.Client.IdP.Issuer = "https://idp.example" }, false},
		"parts that run on": {func(s *Server) { s.Name, s.Client.ID = "doc", "s" }, false},
	} {
		s := base
		tt.change(&s)
		if got, _ := identity(&s); (got == key) != tt.same {
			t.Errorf("%s: got the same key: %v, want %v", name, got == key, tt.same)
		}
	}
}

// TestRealServer: the server side of go-sdk accepts what Authorize adds, and what it
// refuses is renewed.
func TestRealServer(t *testing.T) {
	as := newAuthServer(t)
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		if token != "access-1" {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{Expiration: time.Now().Add(time.Hour), Scopes: []string{"read"}}, nil
	}
	server := httptest.NewServer(auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: as.URL})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	l := New(store.At(t.TempDir()), Options{}).At(Server{Name: "docs", URL: server.URL, HTTP: http.DefaultClient})
	if err := l.logins.save(t.Context(), nil, l.key, as.record(time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		used, err := l.Authorize(r)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		got = append(got, response.StatusCode)
		if response.StatusCode != http.StatusOK {
			if err := l.Refused(t.Context(), used, response.StatusCode, response.Header); err != nil {
				t.Error(err)
			}
		}
	}
	if want := []int{http.StatusUnauthorized, http.StatusOK}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRefused(t *testing.T) {
	now := time.Now()
	old := identify("access-0")
	for _, tt := range []struct {
		name      string
		change    func(r *record) // nil: there is no login
		used      string
		status    int
		challenge challenge
		ends      bool // the authorization server has ended the login
		err       string
		signIn    bool
		renewed   bool
		wanted    []string
		ended     bool
	}{
		{name: "no login", status: 401, err: `server "docs" needs a login`, signIn: true},
		{name: "no login, 403", status: 403, err: `server "docs" refused the request (status 403)`},
		{name: "renewed", change: func(*record) {}, used: old, status: 401, renewed: true},
		{name: "another token is there", change: func(*record) {}, used: identify("older"), status: 401},
		{name: "a login is there now", change: func(*record) {}, status: 401},
		{name: "ended", change: func(*record) {}, used: old, status: 401, ends: true, renewed: true, err: "has ended", signIn: true, ended: true},
		{name: "ended before", change: func(r *record) { r.Ended = "it is over" }, status: 401, err: "it is over", signIn: true, ended: true},
		{name: "cannot be renewed", change: func(r *record) { r.Refresh = "" }, used: old, status: 401, err: "does not accept the token", signIn: true},
		{name: "cannot be renewed, and is not valid", change: func(r *record) { r.Refresh = "" }, used: old, status: 401, challenge: challenge{Error: "invalid_token"}, err: "has ended", signIn: true, ended: true},
		{name: "just renewed", change: func(r *record) { r.Renewed = now }, used: old, status: 401, err: "has just issued", signIn: true},
		{name: "renewed half of a short life ago", change: func(r *record) { r.Renewed, r.Expires = now.Add(-2*time.Second), now.Add(2*time.Second) }, used: old, status: 401, renewed: true},
		{name: "forbidden", change: func(*record) {}, used: old, status: 403, err: "refused the request (status 403)"},
		{name: "more scopes", change: func(r *record) { r.Wanted = []string{"list"} }, used: old, status: 403, challenge: challenge{Error: "insufficient_scope", Scopes: []string{"read", "write"}},
			err: "needs more rights for this request (read write)", signIn: true, wanted: []string{"list", "read", "write"}},
		{name: "scopes that it has", change: func(*record) {}, used: old, status: 403, challenge: challenge{Error: "insufficient_scope", Scopes: []string{"read"}}, err: "names no scope"},
		{name: "a nonce for a token that is not bound", change: func(*record) {}, used: old, status: 401, challenge: challenge{Error: "use_dpop_nonce", Nonce: "n"}, renewed: true},
		{name: "a nonce", change: func(r *record) { r.DPoP = true }, used: old, status: 401, challenge: challenge{Error: "use_dpop_nonce", Nonce: "n"}},
		{name: "an empty nonce", change: func(r *record) { r.DPoP = true }, used: old, status: 401, challenge: challenge{Error: "use_dpop_nonce"}, err: "does not accept the proof"},
	} {
		as := newAuthServer(t)
		as.ended = tt.ends
		var r *record
		if tt.change != nil {
			r = as.record(now.Add(time.Hour))
			tt.change(r)
		}
		l := as.login(t, store.At(t.TempDir()), r)
		err := l.refused(t.Context(), tt.used, tt.status, tt.challenge)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || errors.Is(err, ErrSignIn) != tt.signIn {
			t.Errorf("%s: got %v, want %q, sign in: %v", tt.name, err, tt.err, tt.signIn)
		}
		if tt.signIn && !strings.HasSuffix(err.Error(), "sign in with 'sallyport servers login docs'") {
			t.Errorf("%s: got %v, want what to do", tt.name, err)
		}
		if got := len(as.received("grant_type")) == 1; got != tt.renewed {
			t.Errorf("%s: got renewed: %v, want %v", tt.name, got, tt.renewed)
		}
		status, _, _ := l.Status()
		if (status.Ended != "") != tt.ended {
			t.Errorf("%s: got ended: %q, want %v", tt.name, status.Ended, tt.ended)
		}
		if tt.wanted != nil && !slices.Equal(status.Wanted, tt.wanted) {
			t.Errorf("%s: got wanted scopes %q, want %q", tt.name, status.Wanted, tt.wanted)
		}
	}
}

func TestSignOut(t *testing.T) {
	refuses := func(code string, of ...string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if slices.Contains(of, r.PostForm.Get("token_type_hint")) {
				answer(w, http.StatusBadRequest, map[string]any{"error": code})
				return true
			}
			return false
		}
	}
	for _, tt := range []struct {
		name    string
		change  func(r *record) // nil: there is no login
		before  func(http.ResponseWriter, *http.Request) bool
		damage  bool
		tokens  []string
		revoked bool
		err     string
	}{
		{name: "no login"},
		{name: "a login", change: func(*record) {}, tokens: []string{"refresh-0", "access-0"}, revoked: true},
		{name: "a login without a refresh token", change: func(r *record) { r.Refresh = "" }, tokens: []string{"access-0"}, revoked: true},
		{name: "no revocation", change: func(r *record) { r.Party.Revocation = "" }},
		{name: "revocation of refresh tokens alone", change: func(*record) {}, before: refuses("unsupported_token_type", "access_token"), tokens: []string{"refresh-0", "access-0"}, revoked: true},
		{name: "refused", change: func(*record) {}, before: refuses("invalid_client", "access_token", "refresh_token"), tokens: []string{"refresh-0", "access-0"}, err: "the refresh token could not be revoked: invalid_client"},
		{name: "unreachable", change: func(r *record) { r.Party.Revocation = "http://127.0.0.1:0/" }, err: "could not be revoked"},
		{name: "a damaged record", change: func(*record) {}, damage: true, err: "the login is forgotten, but was not revoked"},
	} {
		as := newAuthServer(t)
		as.before = tt.before
		var r *record
		if tt.change != nil {
			r = as.record(time.Now().Add(time.Hour))
			tt.change(r)
		}
		dir := store.At(t.TempDir())
		l := as.login(t, dir, r)
		if tt.damage {
			if err := dir.Write(l.key+loginSuffix, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		revoked, err := l.SignOut(t.Context())
		if revoked != tt.revoked || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) || err != nil && strings.Contains(err.Error(), "access-0") {
			t.Errorf("%s: got %v, %v, want %v, %q", tt.name, revoked, err, tt.revoked, tt.err)
		}
		if got := as.received("token"); !slices.Equal(got, tt.tokens) {
			t.Errorf("%s: got revoked %q, want %q", tt.name, got, tt.tokens)
		}
		if status, ok, err := as.login(t, dir, nil).Status(); ok || err != nil {
			t.Errorf("%s: got status %+v, %v, want none", tt.name, status, err)
		}
	}
}

func TestStatus(t *testing.T) {
	as := newAuthServer(t)
	dir := store.At(t.TempDir())
	r := as.record(time.Now().Add(time.Hour).UTC().Round(0))
	r.Account, r.Wanted = "ann", []string{"write"}
	l := as.login(t, dir, r)
	want := Status{Server: "docs", URL: resource, Issuer: as.URL, Account: "ann", Scopes: []string{"read"}, Since: r.Since, Expires: r.Expires, Renewable: true, Wanted: []string{"write"}}
	got, ok, err := l.Status()
	if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
		t.Errorf("got %v, %v; (-want +got):\n%s", ok, err, diff)
	}
	expired := as.record(time.Now())
	expired.Refresh = ""
	if err := errors.Join(l.logins.save(t.Context(), nil, "expired", expired), dir.Write("damaged"+loginSuffix, nil)); err != nil {
		t.Fatal(err)
	}
	list, err := New(dir, Options{}).List(t.Context(), nil)
	if len(list) != 2 || err == nil || !strings.Contains(err.Error(), "damaged.login was changed") {
		t.Errorf("got %+v, %v; want two logins, and an error for the third", list, err)
	}
	if i := slices.IndexFunc(list, func(s Status) bool { return s.Ended == "its token has expired" }); i < 0 {
		t.Errorf("got %+v, want one that has expired", list)
	}
}

func TestRedact(t *testing.T) {
	as := newAuthServer(t)
	r := as.record(time.Now())
	r.Party.Secret = "client-secret"
	l := as.login(t, store.At(t.TempDir()), r)
	l.server.Client.Assertion = "assertion-1"
	if header, _, err := authorize(t, l, resource); header != "Bearer access-1" || err != nil {
		t.Fatal(header, err)
	}
	got := l.Redact("access-0 refresh-0 access-1 refresh-1 client-secret assertion-1 other")
	if want := strings.Repeat("*** ", 6) + "other"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// BenchmarkAuthorize: Authorize is on the path of every request.
func BenchmarkAuthorize(b *testing.B) {
	as := &authServer{Server: &httptest.Server{URL: "https://as.example"}}
	dir := store.At(b.TempDir())
	l := as.login(b, dir, as.record(time.Now().Add(time.Hour)))
	long := time.Now().Add(-time.Hour) // a file that was just written is read again
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, resource, nil)
	if err = errors.Join(err, os.Chtimes(dir.Path(l.key+loginSuffix), long, long)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if used, err := l.Authorize(r); used == "" || err != nil {
			b.Fatal(used, err)
		}
	}
}
