package oauth

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/remote"
)

const (
	redirectURL = "http://127.0.0.1:1234/callback"
	aboutUs     = "https://sallyport.example/client.json"
)

func TestMethodFor(t *testing.T) {
	for _, test := range []struct {
		supported string
		secret    bool
		want      string
	}{
		{"", false, "none"},
		{"client_secret_basic", false, "none"},
		{"", true, "client_secret_basic"},
		{"client_secret_basic", true, "client_secret_basic"},
		{"client_secret_post", true, "client_secret_post"},
		{"client_secret_basic client_secret_post none", true, "client_secret_post"},
		{"none", true, "none"},
		{"private_key_jwt tls_client_auth", true, ""},
	} {
		got, err := methodFor(strings.Fields(test.supported), test.secret)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q, %v: got %q, %v, want %q", test.supported, test.secret, got, err, test.want)
		}
	}
}

// TestRegister: what is sent, and what is made of the answers.
func TestRegister(t *testing.T) {
	ends := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		methods []string
		answer  webPage
		asked   string // token_endpoint_auth_method
		want    party
		err     string
		kind    error
	}{
		{"public", []string{"none"}, webPage{status: 201, body: `{"client_id":"x","token_endpoint_auth_method":"none"}`}, "none", party{ID: "x", Method: "none"}, "", nil},
		{"no methods, no secret", nil, webPage{status: 200, body: `{"client_id":"x"}`}, "none", party{ID: "x", Method: "none"}, "", nil},
		{"no methods, a secret", nil, webPage{status: 201, body: `{"client_id":"x","client_secret":"y"}`}, "none", party{ID: "x", Secret: "y", Method: "client_secret_basic"}, "", nil},
		{"a secret that is of no use", []string{"none"}, webPage{status: 201, body: `{"client_id":"x","client_secret":"y","client_secret_expires_at":1}`}, "none", party{ID: "x", Method: "none"}, "", nil},
		{"only secrets", []string{"client_secret_basic"}, webPage{status: 201, body: `{"client_id":"x","client_secret":"y","client_secret_expires_at":1893456000}`}, "client_secret_basic", party{ID: "x", Secret: "y", Method: "client_secret_basic", Ends: ends}, "", nil},
		{"its own choice", []string{"none", "client_secret_basic"}, webPage{status: 201, body: `{"client_id":"x","client_secret":"y","token_endpoint_auth_method":"client_secret_post","client_secret_expires_at":0}`}, "none", party{ID: "x", Secret: "y", Method: "client_secret_post"}, "", nil},
		{"only keys", []string{"private_key_jwt"}, webPage{}, "", party{}, "only private_key_jwt", nil},
		{"a key after all", nil, webPage{status: 201, body: `{"client_id":"x","token_endpoint_auth_method":"private_key_jwt"}`}, "none", party{}, "in a way that was not asked for: private_key_jwt", ErrHostile},
		{"a secret that is missing", nil, webPage{status: 201, body: `{"client_id":"x","token_endpoint_auth_method":"client_secret_post"}`}, "none", party{}, "gave no client secret", ErrHostile},
		{"a client ID with lines", nil, webPage{status: 201, body: `{"client_id":"x\r\ny"}`}, "none", party{}, "the client ID", ErrHostile},
		{"a long client ID", nil, webPage{status: 201, body: `{"client_id":"` + strings.Repeat("x", maxClientID+1) + `"}`}, "none", party{}, "the client ID", ErrHostile},
		{"a secret with lines", nil, webPage{status: 201, body: `{"client_id":"x","client_secret":"s3cret\n"}`}, "none", party{}, "the client secret", ErrHostile},
		{"no client ID", nil, webPage{status: 201, body: `{"client_secret":"s3cret"}`}, "none", party{}, "cannot be read", ErrHostile},
		{"not JSON", nil, webPage{status: 201, body: `{"client_secret":"s3cret"`}, "none", party{}, "cannot be read", ErrHostile},
		{"a scheme to be wary of", nil, webPage{status: 201, body: `{"client_id":"x","logo_uri":"javascript:s3cret"}`}, "none", party{}, "cannot be read", ErrHostile},
		{"100 MB", nil, webPage{status: 201, stream: io.LimitReader(spaces{}, 100<<20)}, "none", party{}, "cannot be read", ErrHostile},
		{"refused with a reason", nil, webPage{status: 400, body: `{"error":"invalid_redirect_uri","error_description":"not\n\u001b[31m here"}`}, "none", party{}, "invalid_redirect_uri not", nil},
		{"refused without", nil, webPage{status: 400, body: `s3cret`}, "none", party{}, "HTTP status 400", nil},
		{"refused otherwise", nil, webPage{status: 403, body: `s3cret`}, "none", party{}, "HTTP status 403", nil},
		{"a private address", nil, webPage{err: rule("host idp.example is on a private network")}, "", party{}, "host idp.example is on a private network", ErrHostile},
		{"no network", nil, webPage{err: errors.New("no route")}, "", party{}, "no route", nil},
	} {
		w := &web{pages: map[string]webPage{idp + "/register": test.answer}}
		p := party{}
		err := p.register(t.Context(), &http.Client{Transport: w}, &authority{Registration: idp + "/register", Methods: test.methods}, redirectURL)
		checkError(t, test.name, err, test.kind, test.err)
		if err != nil {
			continue
		}
		test.want.Redirect = redirectURL
		if !p.Ends.IsZero() {
			p.Ends = p.Ends.UTC()
		}
		if diff := cmp.Diff(test.want, p); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(w.sent[0]), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"client_name": "Sallyport", "application_type": "native", "redirect_uris": []any{redirectURL},
			"grant_types": []any{"authorization_code", "refresh_token"}, "response_types": []any{"code"}, "token_endpoint_auth_method": test.asked,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: request (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestServes: a registration is replaced when its secret expires soon, and for
// another redirect or endpoint.
func TestServes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := &authority{Registration: idp + "/register"}
	good := party{ID: "x", Redirect: redirectURL, Register: a.Registration}
	with := func(change func(*party)) *party {
		p := good
		change(&p)
		return &p
	}
	for _, test := range []struct {
		name string
		p    *party
		want bool
	}{
		{"none", nil, false},
		{"the same", &good, true},
		{"another redirect", with(func(p *party) { p.Redirect = redirectURL + "/2" }), false},
		{"another endpoint", with(func(p *party) { p.Register = idp }), false},
		{"lasting", with(func(p *party) { p.Ends = now.Add(2 * time.Hour) }), true},
		{"about to end", with(func(p *party) { p.Ends = now.Add(time.Minute) }), false},
		{"ended", with(func(p *party) { p.Ends = now.Add(-time.Minute) }), false},
	} {
		if got := test.p.serves(a, redirectURL, now); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestJoin: credentials, a document, a registration, in this order, and none of
// them at another authorization server.
func TestJoin(t *testing.T) {
	l := New(store.At(t.TempDir()), Options{Metadata: aboutUs})
	if err := l.keep(t.Context(), nil, "https://none.example", nil); err != nil {
		t.Skip("the storage of logins is not there yet:", err)
	}
	w := &web{pages: map[string]webPage{
		idp + "/register":                {status: 201, body: `{"client_id":"first"}`},
		"https://other.example/register": {status: 201, body: `{"client_id":"other"}`},
	}}
	at := func(issuer string, change func(*authority)) *authority {
		a := &authority{Issuer: issuer, Token: issuer + "/token", Registration: issuer + "/register", Revocation: issuer + "/revoke", Methods: []string{"none", "client_secret_basic"}}
		if change != nil {
			change(a)
		}
		return a
	}
	reads := func(a *authority) { a.Metadata = true }
	given := Client{ID: "own", Secret: "s"}
	for _, test := range []struct {
		name      string
		client    Client
		authority *authority
		redirect  string
		want      party // without endpoints
		asked     int   // registrations
		err       string
		kind      error
	}{
		{"credentials come first", given, at(idp, reads), redirectURL, party{ID: "own", Secret: "s", Method: "client_secret_basic"}, 0, "", nil},
		{"credentials of this issuer", Client{ID: "own", Issuer: idp + "/"}, at(idp, nil), redirectURL, party{ID: "own", Method: "none"}, 0, "", nil},
		{"credentials of another issuer", Client{ID: "own", Issuer: "https://other.example"}, at(idp, nil), redirectURL, party{}, 0, "belongs to https://other.example", ErrHostile},
		{"a key", Client{ID: "own", Key: "PEM", Algorithm: "ES256"}, at(idp, nil), "", party{ID: "own", Key: "PEM", Algorithm: "ES256", Method: "private_key_jwt"}, 0, "", nil},
		{"a document", Client{}, at(idp, reads), redirectURL, party{ID: aboutUs, Method: "none"}, 0, "", nil},
		{"a registration", Client{}, at(idp, nil), redirectURL, party{ID: "first", Method: "none", Redirect: redirectURL}, 1, "", nil},
		{"the same registration", Client{}, at(idp, nil), redirectURL, party{ID: "first", Method: "none", Redirect: redirectURL}, 0, "", nil},
		{"another redirect", Client{}, at(idp, nil), redirectURL + "/2", party{ID: "first", Method: "none", Redirect: redirectURL + "/2"}, 1, "", nil},
		{"another issuer", Client{}, at("https://other.example", nil), redirectURL, party{ID: "other", Method: "none", Redirect: redirectURL}, 1, "", nil},
		{"no registration", Client{}, at(idp, func(a *authority) { a.Registration = "" }), redirectURL, party{}, 0, "by hand", nil},
		{"no person", Client{Grant: Credentials}, at(idp, nil), "", party{}, 0, "needs a client ID", nil},
	} {
		w.asked = nil
		p, err := l.join(t.Context(), &Server{Name: "notes", URL: mcpURL, Client: test.client, HTTP: &http.Client{Transport: w}}, test.authority, test.redirect)
		checkError(t, test.name, err, test.kind, test.err)
		if len(w.asked) != test.asked {
			t.Errorf("%s: got %d registrations, want %d", test.name, len(w.asked), test.asked)
		}
		if err != nil {
			continue
		}
		a := test.authority
		test.want.Issuer, test.want.Token, test.want.Revocation, test.want.Register = a.Issuer, a.Token, a.Revocation, a.Registration
		if diff := cmp.Diff(test.want, *p); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	// Credentials stay at the issuer that they were used at.
	s := Server{Name: "notes", URL: mcpURL, Client: given, HTTP: &http.Client{Transport: w}}
	key := l.At(s).key
	if err := l.save(t.Context(), nil, key, &record{Server: s.Name, URL: s.URL, Party: party{Issuer: idp, Token: idp + "/token", ID: "own"}, Access: "a"}); err != nil {
		t.Fatal(err)
	}
	_, err := l.join(t.Context(), &s, at("https://other.example", nil), redirectURL)
	checkError(t, "used at another issuer", err, ErrHostile, "used at "+idp+" until now")
	if _, err := l.join(t.Context(), &s, at(idp, nil), redirectURL); err != nil {
		t.Errorf("at the same issuer: %v", err)
	}
	if err := l.save(t.Context(), nil, key, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.join(t.Context(), &s, at("https://other.example", nil), redirectURL); err != nil {
		t.Errorf("after signing out: %v", err)
	}
}

// TestDiscoverOverHTTP: a server with go-sdk's own handlers, and the client that
// is used for real.
func TestDiscoverOverHTTP(t *testing.T) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	deny := func(path string) http.Handler {
		return auth.RequireBearerToken(nil, &auth.RequireBearerTokenOptions{ResourceMetadataURL: server.URL + path, Scopes: []string{"read", "write"}})(http.NotFoundHandler())
	}
	mux.Handle("/mcp", deny("/metadata"))
	mux.Handle("/metadata", auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{Resource: server.URL + "/mcp", AuthorizationServers: []string{server.URL}}))
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, issuerDocument(server.URL, nil).body)
	})
	redirects := map[string]string{
		"/circle": "/circle", "/metadata-service": "http://169.254.169.254/latest", "/file": "file:///etc/passwd", "/plain": "http://idp.example/",
	}
	for path, to := range redirects {
		mux.Handle(path, http.RedirectHandler(to, http.StatusFound))
	}
	client, err := remote.NewNetwork(nil, nil).SignIn(server.URL+"/mcp", remote.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	s := &Server{Name: "notes", URL: server.URL + "/mcp", HTTP: client}
	response, err := http.Post(s.URL, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	got, err := discover(t.Context(), s, readChallenge(response.Header))
	if err != nil {
		t.Fatal(err)
	}
	want := issuerOf(server.URL, server.URL+"/mcp", func(a *authority) { a.Scopes = []string{"read", "write"} })
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(authority{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for path, want := range map[string]string{
		"/circle": "redirects in circles", "/metadata-service": "link-local", "/file": "must begin with https", "/plain": "plain http to idp.example",
	} {
		_, err := discover(t.Context(), s, challenge{Metadata: server.URL + path})
		checkError(t, path, err, ErrHostile, want)
	}
}
