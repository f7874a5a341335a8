package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

// hang is a bound that only a hang reaches.
const hang = time.Minute

// authServer is an authorization server with one login, whose refresh tokens it
// rotates: one that is used twice ends the login, unless it tolerates that.
type authServer struct {
	*httptest.Server
	tolerant bool
	// before may answer a request in the server's place.
	before func(w http.ResponseWriter, r *http.Request) (done bool)
	// after may keep an answer back.
	after func()

	mu       sync.Mutex
	number   int // of the tokens that are valid
	ended    bool
	requests []url.Values
}

func newAuthServer(t *testing.T) *authServer {
	a := &authServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", a.token)
	mux.HandleFunc("POST /revoke", a.revoke)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// note records a request, and reports whether it is answered already.
func (a *authServer) note(w http.ResponseWriter, r *http.Request) bool {
	_ = r.ParseForm()
	a.mu.Lock()
	a.requests = append(a.requests, r.PostForm)
	before := a.before
	a.mu.Unlock()
	return before != nil && before(w, r)
}

func (a *authServer) token(w http.ResponseWriter, r *http.Request) {
	if a.note(w, r) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.PostForm.Get("refresh_token") != fmt.Sprint("refresh-", a.number) && !a.tolerant {
		a.ended = true
	}
	if a.ended {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": "used twice"})
		return
	}
	a.number++
	if a.after != nil {
		a.after()
	}
	answer(w, http.StatusOK, map[string]any{
		"access_token": fmt.Sprint("access-", a.number), "token_type": "bearer", "expires_in": 3600, "refresh_token": fmt.Sprint("refresh-", a.number),
	})
}

func (a *authServer) revoke(w http.ResponseWriter, r *http.Request) {
	a.note(w, r)
}

// received returns the values of a parameter, one for each request.
func (a *authServer) received(name string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var values []string
	for _, form := range a.requests {
		values = append(values, form.Get(name))
	}
	return values
}

func answer(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}

// record returns a login at the server whose token expires at a time.
func (a *authServer) record(expires time.Time) *record {
	return &record{
		Server: "docs", URL: resource, Resource: resource, Access: "access-0", Refresh: "refresh-0", Expires: expires, Scopes: []string{"read"}, Since: time.Unix(1e9, 0).UTC(),
		Party: party{Issuer: a.URL, Token: a.URL + "/token", Revocation: a.URL + "/revoke", ID: "client", Method: "none"},
	}
}

const resource = "https://docs.example/mcp"

// login returns a login at the server docs, which keeps a record (nil: none), with a
// new Logins, as another process has it.
func (a *authServer) login(t testing.TB, dir store.Dir, r *record) *Login {
	t.Helper()
	l := New(dir, Options{}).At(Server{Name: "docs", URL: resource, HTTP: http.DefaultClient})
	if r != nil {
		if err := l.logins.save(t.Context(), nil, l.key, r); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// authorize authorizes a request to an address, and returns its header.
func authorize(t testing.TB, l *Login, address string) (header, used string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	used, err = l.Authorize(r)
	return r.Header.Get("Authorization"), used, err
}

// memoryKeyring is a keyring in memory.
type memoryKeyring struct {
	mu      sync.Mutex
	entries map[string]string
	err     error // of every call
	gets    int
}

func (k *memoryKeyring) Get(_ context.Context, name string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gets++
	if k.err != nil {
		return "", k.err
	}
	value, ok := k.entries[name]
	if !ok {
		return "", fmt.Errorf("no entry: %w", fs.ErrNotExist)
	}
	return value, nil
}

func (k *memoryKeyring) Set(_ context.Context, name, value string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	if k.entries == nil {
		k.entries = map[string]string{}
	}
	k.entries[name] = value
	return nil
}

var errLocked = errors.New("it was not unlocked")
