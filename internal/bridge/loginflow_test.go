package bridge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
	"github.com/sallyport/sallyport/internal/upstream/oauth"
)

// newGuarded returns a server that wants a token, with an authorization server that
// asks nothing. A call needs the scope "write", which the first token does not have.
func newGuarded(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	g := httptest.NewServer(mux)
	t.Cleanup(g.Close)
	say := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 200, map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}, "scopes_supported": []string{"read"}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 200, map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token",
			"registration_endpoint": g.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
			"response_types_supported": []string{"code"}, "token_endpoint_auth_methods_supported": []string{"none"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		body["client_id"] = "registered"
		say(w, http.StatusCreated, body)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		back := url.Values{"state": {q.Get("state")}, "code": {"code for " + q.Get("scope")}}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		scope := strings.TrimPrefix(r.PostFormValue("code"), "code for ")
		say(w, 200, map[string]any{"access_token": "t0ken-for-" + strings.ReplaceAll(scope, " ", "-"), "token_type": "Bearer", "expires_in": 3600, "scope": scope})
	})
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		token := r.Header.Get("Authorization")
		var result string
		switch {
		case !strings.HasPrefix(token, "Bearer t0ken-for-"):
			w.WriteHeader(http.StatusUnauthorized)
			return
		case m.Method == "tools/call" && !strings.Contains(token, "write"):
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="write"`)
			w.WriteHeader(http.StatusForbidden)
			return
		case m.Method == "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"docs","version":"1"}}`
		case m.Method == "tools/list":
			result = `{"tools":[{"name":"find","inputSchema":{"type":"object"}}]}`
		case m.Method == "tools/call":
			result = `{"content":[]}`
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		default:
			say(w, 200, map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": "no"}})
			return
		}
		say(w, 200, map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": json.RawMessage(result)})
	})
	return g
}

// TestSignInWithOAuth: where the server starts, and again where a call needs more
// rights, the user signs in with a browser, and code hears of neither.
func TestSignInWithOAuth(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	g := newGuarded(t)
	def := definitions.NewRemote("docs", "", definitions.Remote{URL: g.URL + "/mcp", Transport: definitions.Auto})
	m := upstream.NewManager([]upstream.Definition{def}, upstream.Options{Logins: oauth.New(store.At(t.TempDir()), oauth.Options{})})
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	p := &person{}
	p.answer = func(_ context.Context, address string) (json.RawMessage, error) {
		resp, err := http.Get(address)
		if err != nil {
			return nil, err
		}
		return accepted, resp.Body.Close()
	}
	b, log := between(t, Upstream(m), p)
	x := b.Begin(clickable, []string{"docs"})
	for _, want := range []string{"", "write"} {
		p.asked = nil
		var err error
		if want == "" {
			_, err = x.Prepare(t.Context())
		} else {
			err = call(t.Context(), x)
		}
		if err != nil || len(p.asked) != 1 || !strings.Contains(p.asked[0].URL, want) {
			t.Errorf("scope %q: got %v after %d offers, want none after one; log: %s", want, err, len(p.asked), log)
		}
	}
	if err := call(t.Context(), x); err != nil || len(p.asked) != 1 {
		t.Errorf("signed in: got %v after %d offers", err, len(p.asked))
	}
	if text := log.String(); strings.Contains(text, "t0ken") || strings.Contains(text, "state=") {
		t.Errorf("the log has secrets: %s", text)
	}
}
