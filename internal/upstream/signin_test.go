package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// guarded is a server that wants a token, which it repeats in what it says, with an
// authorization server that asks nothing.
type guarded struct {
	*httptest.Server
	strict atomic.Bool // the token does not do
	narrow atomic.Bool // a call needs another scope
}

const issued = "issued-t0ken"

func newGuarded(t *testing.T) *guarded {
	inner := sdkHTTP(t, "stateful", "2025-11-25")
	g := &guarded{}
	mux := http.NewServeMux()
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	say := func(pattern string, answer func() any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer())
		})
	}
	say("/.well-known/oauth-protected-resource/mcp", func() any {
		return map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}}
	})
	say("/.well-known/oauth-authorization-server", func() any {
		return map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token",
			"registration_endpoint": g.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
			"response_types_supported": []string{"code"}, "token_endpoint_auth_methods_supported": []string{"none"},
		}
	})
	say("/token", func() any { return map[string]any{"access_token": issued, "token_type": "Bearer", "expires_in": 3600} })
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		body["client_id"] = "registered"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(body)
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		asked := peekRequest(r)
		switch {
		case r.Header.Get("Authorization") != "Bearer "+issued || g.strict.Load():
			w.Header().Set("WWW-Authenticate", "Bearer error=\"invalid_token\"")
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, "not with %q", r.Header.Get("Authorization"))
		case asked.Params.Name != "" && g.narrow.Load():
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="more"`)
			w.WriteHeader(http.StatusForbidden)
		case asked.Params.Name == "repeat":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"it is %s"}]}}`, asked.ID, issued)
		case asked.Params.Name == "complain":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"not with %s"}}`, asked.ID, issued)
		default:
			inner.Config.Handler.ServeHTTP(w, r)
		}
	})
	return g
}

// agreeing is a browser whose user agrees to everything.
type agreeing struct{}

func (agreeing) URL() string  { return "http://127.0.0.1:1/callback" }
func (agreeing) Close() error { return nil }
func (agreeing) Visit(_ context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	return agreeing{}.URL() + "?code=code&state=" + url.QueryEscape(u.Query().Get("state")), nil
}

func agree(string) (oauth.Redirect, error) { return agreeing{}, nil }

func TestSignIn(t *testing.T) {
	g := newGuarded(t)
	dir := store.At(t.TempDir())
	logged := &logBuffer{}
	var secrets []string
	with := func() *oauth.Logins {
		return oauth.New(dir, oauth.Options{Log: logged.logger(), Secret: func(s ...string) { secrets = append(secrets, s...) }})
	}
	m := manage(t, Options{Log: logged.logger(), Logins: with()}, over("my docs", g.URL+"/mcp", definitions.Auto))
	const remedy = "sign in with 'sallyport servers login 'my docs''"
	// More often than starts are tried without a pause.
	for range 4 {
		_, err := m.Server(t.Context(), "my docs")
		if !errors.Is(err, ErrUnauthorized) || !errors.Is(err, oauth.ErrSignIn) || !strings.Contains(err.Error(), remedy) {
			t.Fatalf("before: got the error %v, want one with %q", err, remedy)
		}
		if got := Cause(err); !strings.Contains(got, remedy) {
			t.Errorf("code reads %q, want %q", got, remedy)
		}
	}
	// Another process signs in, and the server is started at once.
	other := manage(t, Options{Logins: with()}, over("my docs", g.URL+"/mcp", definitions.Auto))
	if _, err := other.SignIn(t.Context(), "my docs", agree); err != nil {
		t.Fatal(err)
	}
	s, err := m.Server(t.Context(), "my docs")
	if err != nil {
		t.Fatalf("after: %v", err)
	}
	if _, err := s.CallTool(t.Context(), "echo", nil); err != nil {
		t.Error(err)
	}
	got, err := s.CallTool(t.Context(), "repeat", nil)
	if err != nil || strings.Contains(string(got), issued) || !strings.Contains(string(got), "it is ***") {
		t.Errorf("a result that repeats the token: got %s, %v", got, err)
	}
	if _, err := s.CallTool(t.Context(), "complain", nil); err == nil || strings.Contains(err.Error(), issued) || !strings.Contains(err.Error(), "not with ***") {
		t.Errorf("an error that repeats the token: got %v", err)
	}
	g.strict.Store(true)
	if _, err := s.CallTool(t.Context(), "echo", nil); !errors.Is(err, oauth.ErrSignIn) || strings.Contains(err.Error(), issued) {
		t.Errorf("a token that does not do any more: got the error %v, want %v", err, oauth.ErrSignIn)
	}
	// Who signs in again needs no other server.
	g.strict.Store(false)
	again := func() {
		t.Helper()
		if _, err := m.SignIn(t.Context(), "my docs", agree); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CallTool(t.Context(), "echo", nil); err != nil {
			t.Errorf("signed in again: %v", err)
		}
	}
	again()
	g.narrow.Store(true)
	if _, err := s.CallTool(t.Context(), "echo", nil); !errors.Is(err, oauth.ErrSignIn) || errors.Is(err, ErrGone) || !strings.Contains(err.Error(), "more rights") {
		t.Errorf("a call that needs more rights: got the error %v, want %v", err, oauth.ErrSignIn)
	}
	g.narrow.Store(false)
	again()
	if strings.Contains(logged.String(), issued) {
		t.Errorf("the log has the token: %s", logged)
	}
	if !strings.Contains(strings.Join(secrets, " "), issued) {
		t.Errorf("got the secrets %q, want the token", secrets)
	}
}

func TestNoSignIn(t *testing.T) {
	open := sdkHTTP(t, "stateful", "2025-11-25")
	header := definitions.Remote{URL: open.URL, Transport: definitions.Auto, Headers: map[string]string{"authorization": "Bearer own-t0ken"}}
	off := definitions.Remote{URL: open.URL, Transport: definitions.Auto, OAuth: definitions.OAuth{Off: true}}
	m := manage(t, Options{Logins: oauth.New(store.At(t.TempDir()), oauth.Options{})},
		over("open", open.URL, definitions.Auto), define(t, "program", "sdk"),
		definitions.NewRemote("header", "", header), definitions.NewRemote("off", "", off))
	for name, want := range map[string]bool{"open": true, "program": false, "header": false, "off": false, "unknown": false} {
		if _, got := m.Login(name); got != want {
			t.Errorf("%s: got a login: %t, want %t", name, got, want)
		}
		_, err := m.SignIn(t.Context(), name, agree)
		if name == "unknown" && !errors.Is(err, ErrUnknownServer) || name != "unknown" && !errors.Is(err, ErrNoLogin) {
			t.Errorf("%s: got the error %v", name, err)
		}
	}
}
