package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sallyport/sallyport/internal/store"
)

// directory is an identity provider that hands what it knows on to a strict server's.
type directory struct {
	*httptest.Server
	visits, refreshes int
	nonce             string
	over              bool // the person's session
}

func newDirectory(t *testing.T, s *strict) *directory {
	d := &directory{}
	mux := http.NewServeMux()
	d.Server = httptest.NewServer(mux)
	t.Cleanup(d.Close)
	mux.HandleFunc("/tenant/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{
			"issuer": d.URL + "/tenant", "authorization_endpoint": d.URL + "/authorize", "token_endpoint": d.URL + "/token",
			"code_challenge_methods_supported": []string{"S256"}, "scopes_supported": []string{"openid", "offline_access"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_post", "none"},
		})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("scope") != "openid offline_access" || q.Has("resource") || q.Get("client_id") != "sallyport-at-idp" {
			t.Errorf("the person came with %v", q)
		}
		d.visits, d.nonce = d.visits+1, q.Get("nonce")
		back := url.Values{"code": {"code"}, "state": {q.Get("state")}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		grant, form := r.PostForm.Get("grant_type"), r.PostForm
		if form.Has("resource") == slices.Contains([]string{"authorization_code", "refresh_token"}, grant) {
			t.Errorf("the provider was asked for %v", form)
		}
		answer := map[string]any{"error": "invalid_grant"}
		switch {
		case grant == "authorization_code" || grant == "refresh_token" && !d.over:
			if grant == "refresh_token" {
				d.refreshes++
			}
			claims := jwt.MapClaims{"iss": d.URL + "/tenant", "aud": "sallyport-at-idp", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()}
			if d.nonce != "" {
				claims["nonce"], d.nonce = d.nonce, ""
			}
			answer = map[string]any{
				"access_token": "of-the-provider", "token_type": "Bearer", "expires_in": 3600,
				"refresh_token": fmt.Sprint("refresh-", d.refreshes), "id_token": sign(t, "P-256", claims),
			}
		case grant == "refresh_token":
			w.WriteHeader(http.StatusBadRequest)
		default:
			s.JAG = func(_ map[string]any, c jwt.MapClaims) { c["iss"] = d.URL + "/tenant" }
			s.Provider = d.URL + "/tenant"
			got, err := s.exchange(form)
			if answer = got; err != nil {
				t.Error(err)
			}
		}
		json.NewEncoder(w).Encode(answer)
	})
	return d
}

// walker is a person who agrees.
type walker struct{}

func (walker) URL() string  { return "http://127.0.0.1:1/callback" }
func (walker) Close() error { return nil }
func (walker) Visit(ctx context.Context, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	res.Body.Close()
	return res.Header.Get("Location"), nil
}

func TestEnterprise(t *testing.T) {
	s := newStrict(t)
	d := newDirectory(t, s)
	logins := New(store.At(t.TempDir()), Options{})
	server := func(name string) *Login {
		return logins.At(Server{Name: name, URL: s.URL + "/mcp", HTTP: s.Client(), Client: Client{
			Grant: Enterprise, ID: "robot", Secret: "se:cret%", IdP: IdP{Issuer: d.URL + "/tenant", ClientID: "sallyport-at-idp"},
		}})
	}
	authorize := func(l *Login) (*http.Request, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Authorize(r)
		return r, err
	}
	if _, err := authorize(server("files")); !errors.Is(err, ErrSignIn) {
		t.Errorf("before the sign-in: got the error %v, want %v", err, ErrSignIn)
	}
	open := func(string) (Redirect, error) { return walker{}, nil }
	for _, name := range []string{"files", "mail"} {
		if _, err := server(name).SignIn(t.Context(), nil, open); err != nil {
			t.Fatalf("sign in at %s: %v", name, err)
		}
		r, err := authorize(server(name))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%s: got %s, want 200", name, res.Status)
		}
	}
	if d.visits != 1 {
		t.Errorf("the person signed in %d times, want once for both servers", d.visits)
	}
	expire := func() {
		idp := server("files").provider()
		r, err := logins.load(t.Context(), nil, idp.key)
		if err != nil || r == nil || r.ID == "" {
			t.Fatalf("got the record %+v at the provider and the error %v", r, err)
		}
		r.Expires = time.Unix(1, 0)
		if err := logins.save(t.Context(), nil, idp.key, r); err != nil {
			t.Fatal(err)
		}
	}
	expire()
	if _, err := authorize(server("calendar")); err != nil || d.refreshes != 1 {
		t.Errorf("got the error %v after %d renewals of the ID token, want 1", err, d.refreshes)
	}
	expire()
	d.over = true
	if _, err := authorize(server("photos")); !errors.Is(err, ErrSignIn) {
		t.Errorf("after the session at the provider: got the error %v, want %v", err, ErrSignIn)
	}
	if _, err := server("photos").SignIn(t.Context(), nil, open); err != nil || d.visits != 2 {
		t.Errorf("got the error %v after %d sign-ins, want 2", err, d.visits)
	}
}
