package oauth

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/sallyport/sallyport/internal/store"
)

// authorizer is a resource and its authorization server, which lets everyone in who
// keeps to the rules. The functions change what it says.
type authorizer struct {
	*httptest.Server
	metadata func(m map[string]any)
	answer   func(redirect *url.URL, q url.Values) // of the authorization endpoint
	token    func(m map[string]any, code url.Values)
	userinfo http.HandlerFunc

	mu         sync.Mutex
	clients    map[string]string     // ID to redirect URL
	codes      map[string]url.Values // to the authorization request
	authorized []url.Values
	tokens     []url.Values // requests
}

const (
	accessToken  = "the-access-token-of-the-user"
	refreshToken = "the-refresh-token-of-the-user"
)

func newAuthorizer(t *testing.T) *authorizer {
	t.Helper()
	a := &authorizer{clients: map[string]string{}, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: a.URL + "/mcp", AuthorizationServers: []string{a.URL}, ScopesSupported: []string{"read"},
	}))
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, r *http.Request) {
		m := map[string]any{
			"issuer": a.URL, "authorization_endpoint": a.URL + "/authorize?tenant=1", "token_endpoint": a.URL + "/token",
			"registration_endpoint": a.URL + "/register", "userinfo_endpoint": a.URL + "/userinfo",
			"response_types_supported": []string{"code"}, "grant_types_supported": []string{"authorization_code", "refresh_token"},
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
			"authorization_response_iss_parameter_supported": true,
		}
		if a.metadata != nil {
			a.metadata(m)
		}
		a.json(w, http.StatusOK, m)
	})
	mux.HandleFunc("POST /register", func(w http.ResponseWriter, r *http.Request) {
		var m map[string]any
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.mu.Lock()
		id := fmt.Sprintf("client-%d", len(a.clients)+1)
		a.clients[id] = m["redirect_uris"].([]any)[0].(string)
		a.mu.Unlock()
		m["client_id"], m["token_endpoint_auth_method"] = id, "none"
		a.json(w, http.StatusCreated, m)
	})
	mux.HandleFunc("GET /authorize", a.authorize)
	mux.HandleFunc("POST /token", a.exchange)
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, r *http.Request) {
		if a.userinfo == nil {
			http.NotFound(w, r)
			return
		}
		a.userinfo(w, r)
	})
	return a
}

func (a *authorizer) json(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (a *authorizer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.mu.Lock()
	registered, known := a.clients[q.Get("client_id")]
	a.authorized = append(a.authorized, q)
	a.mu.Unlock()
	for name, want := range map[string]string{
		"tenant": "1", "response_type": "code", "code_challenge_method": "S256", "resource": a.URL + "/mcp", "redirect_uri": registered,
	} {
		if got := q.Get(name); !known || got != want {
			http.Error(w, fmt.Sprintf("%s is %q, want %q; client known: %t", name, got, want, known), http.StatusBadRequest)
			return
		}
	}
	redirect, err := url.Parse(registered)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	code := rand.Text()
	a.mu.Lock()
	a.codes[code] = q
	a.mu.Unlock()
	answer := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {a.URL}}
	if a.answer != nil {
		a.answer(redirect, answer)
	}
	redirect.RawQuery = answer.Encode()
	http.Redirect(w, r, redirect.String(), http.StatusFound)
}

func (a *authorizer) exchange(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, r.PostForm)
	q, ok := a.codes[r.PostForm.Get("code")]
	delete(a.codes, r.PostForm.Get("code"))
	if !ok || oauth2.S256ChallengeFromVerifier(r.PostForm.Get("code_verifier")) != q.Get("code_challenge") ||
		r.PostForm.Get("redirect_uri") != q.Get("redirect_uri") || r.PostForm.Get("client_id") != q.Get("client_id") ||
		r.PostForm.Get("resource") != q.Get("resource") || r.PostForm.Get("grant_type") != "authorization_code" {
		a.json(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": "the code is not\x1b[31m good"})
		return
	}
	m := map[string]any{"access_token": accessToken, "refresh_token": refreshToken, "token_type": "Bearer", "expires_in": 3600}
	if a.token != nil {
		a.token(m, q)
	}
	a.json(w, http.StatusOK, m)
}

// at returns the user's login at the resource.
func (a *authorizer) at(t *testing.T, client Client) *Login {
	t.Helper()
	dir := t.TempDir()
	return New(store.At(dir), Options{}).At(Server{Name: "docs", URL: a.URL + "/mcp", Client: client, HTTP: &http.Client{}})
}

func (a *authorizer) counts() (registered, authorized, tokens int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.clients), len(a.authorized), len(a.tokens)
}

// browser is a person's browser: what it was sent to, and the page at the end.
type browser struct {
	opened []string // what open wanted
	urls   []string // of the redirects
	pages  chan seen
}

type seen struct {
	status int
	body   string
	err    error
}

func newBrowser() *browser { return &browser{pages: make(chan seen, 10)} }

// open is the argument of SignIn.
func (b *browser) open(want string) (Redirect, error) {
	b.opened = append(b.opened, want)
	redirect, err := Loopback(want, func(_ context.Context, address string) error {
		go func() { b.pages <- browse(address) }()
		return nil
	})
	if err == nil {
		b.urls = append(b.urls, redirect.URL())
	}
	return redirect, err
}

func browse(address string) seen {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(address)
	if err != nil {
		return seen{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return seen{resp.StatusCode, string(body), err}
}

// brought is a Redirect whose answer a test writes: it asks the authorization server
// and changes what that says.
type brought struct {
	url    string
	change func(redirect string) string
}

func (b brought) URL() string  { return b.url }
func (b brought) Close() error { return nil }

func (b brought) Visit(ctx context.Context, address string) (string, error) {
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(address)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	back := resp.Header.Get("Location")
	if back == "" {
		return "", fmt.Errorf("the authorization server answered %s", resp.Status)
	}
	return b.change(back), nil
}

// with returns a change of the query.
func with(change func(q url.Values)) func(string) string {
	return func(redirect string) string {
		u, _ := url.Parse(redirect)
		q := u.Query()
		change(q)
		u.RawQuery = q.Encode()
		return u.String()
	}
}

// noSecrets checks that a string has no token, code or verifier.
func (a *authorizer) noSecrets(t *testing.T, where, text string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	secrets := slices.Concat([]string{accessToken, refreshToken}, slices.Collect(maps.Keys(a.codes)))
	for _, form := range a.tokens {
		secrets = append(secrets, form.Get("code"), form.Get("code_verifier"))
	}
	for _, q := range a.authorized {
		secrets = append(secrets, q.Get("state"))
	}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("%s contains the secret %q: %s", where, secret, text)
		}
	}
}
