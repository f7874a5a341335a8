package cli_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"github.com/rogpeppe/go-internal/testscript"
)

// authority is an authorization server where ada has agreed to everything. It is
// strict about all that a client has to do.
type authority struct {
	url, resource string // the only one that it knows

	mu      sync.Mutex
	clients map[string]string  // their redirect URLs
	codes   map[string]consent // that have not been used
	access  map[string]consent
	refresh map[string]consent
	stuck   bool // nothing is revoked
}

// consent is what ada has agreed to.
type consent struct{ client, redirect, challenge, scope string }

// serveOAuth starts a server behind an authorization server and names it in $MCP,
// and one that needs no token in $OPEN. Its tools: tokens counts the tokens that are
// valid, and the clients; stuck has the authorization server revoke no more.
func serveOAuth(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: oauthserver")
	}
	a := &authority{clients: map[string]string{}, codes: map[string]consent{}, access: map[string]consent{}, refresh: map[string]consent{}}
	front := httptest.NewServer(a.handler())
	ts.Defer(front.Close)
	mux := http.NewServeMux()
	back := httptest.NewServer(mux)
	ts.Defer(back.Close)
	a.url, a.resource = front.URL, back.URL+"/mcp"
	server := mcp.NewServer(&mcp.Implementation{Name: "docs", Version: "1"}, nil)
	for _, name := range []string{"tokens", "stuck"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.stuck = a.stuck || name == "stuck"
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("%d tokens, %d clients", len(a.access), len(a.clients))}}}, nil
		})
	}
	speak := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	metadata := back.URL + "/.well-known/oauth-protected-resource/mcp"
	mux.Handle("/mcp", auth.RequireBearerToken(a.verify, &auth.RequireBearerTokenOptions{ResourceMetadataURL: metadata, Scopes: []string{"tools", "openid"}})(speak))
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: a.resource, AuthorizationServers: []string{a.url}, ScopesSupported: []string{"tools", "openid"},
	}))
	mux.Handle("/open", speak)
	ts.Setenv("MCP", a.resource)
	ts.Setenv("OPEN", back.URL+"/open")
}

// verify is an auth.TokenVerifier.
func (a *authority) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := a.access[token]
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{Scopes: strings.Fields(c.scope), Expiration: time.Now().Add(time.Hour), UserID: "ada"}, nil
}

func (a *authority) handler() http.Handler {
	mux := http.NewServeMux()
	// An answer is JSON, or nothing for an address where the browser goes next.
	on := func(pattern string, answer func(w http.ResponseWriter, r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			a.mu.Lock()
			defer a.mu.Unlock()
			v, err := answer(w, r)
			if err != nil {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				v = map[string]string{"error": "invalid_request", "error_description": err.Error()}
			} else if v == nil {
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	on("GET /.well-known/oauth-authorization-server", a.metadata)
	on("POST /register", a.register)
	on("GET /authorize", a.authorize)
	on("POST /token", a.token)
	on("POST /revoke", a.revoke)
	on("GET /userinfo", a.userInfo)
	return mux
}

func (a *authority) metadata(http.ResponseWriter, *http.Request) (any, error) {
	return map[string]any{
		"issuer": a.url, "authorization_endpoint": a.url + "/authorize", "token_endpoint": a.url + "/token", "registration_endpoint": a.url + "/register",
		"revocation_endpoint": a.url + "/revoke", "userinfo_endpoint": a.url + "/userinfo", "authorization_response_iss_parameter_supported": true,
		"response_types_supported": []string{"code"}, "grant_types_supported": []string{"authorization_code", "refresh_token"},
		"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
	}, nil
}

// register is for public clients of this computer.
func (a *authority) register(w http.ResponseWriter, r *http.Request) (any, error) {
	var m oauthex.ClientRegistrationMetadata
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		return nil, err
	}
	if len(m.RedirectURIs) != 1 || m.TokenEndpointAuthMethod != "none" {
		return nil, errors.New("want a public client with one redirect URL")
	}
	u, err := url.Parse(m.RedirectURIs[0])
	if err != nil {
		return nil, err
	}
	if at, err := netip.ParseAddrPort(u.Host); err != nil || !at.Addr().IsLoopback() || u.Scheme != "http" {
		return nil, errors.New("want a redirect URL of this computer")
	}
	id := rand.Text()
	a.clients[id] = m.RedirectURIs[0]
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	return map[string]any{"client_id": id, "redirect_uris": m.RedirectURIs, "token_endpoint_auth_method": "none"}, nil
}

// authorize has ada agree, and sends her back.
func (a *authority) authorize(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	redirect, known := a.clients[q.Get("client_id")]
	back, err := url.Parse(redirect)
	switch challenge, _ := base64.RawURLEncoding.DecodeString(q.Get("code_challenge")); {
	case err != nil || !known || q.Get("redirect_uri") != redirect:
		return nil, errors.New("an unknown client or redirect_uri")
	case q.Get("response_type") != "code":
		return nil, errors.New("response_type must be code")
	case q.Get("code_challenge_method") != "S256" || len(challenge) != sha256.Size:
		return nil, errors.New("a challenge with S256 is missing")
	case q.Get("resource") != a.resource || len(q["resource"]) != 1:
		return nil, errors.New("an unknown resource")
	case len(q.Get("state")) < 16:
		return nil, errors.New("a state is missing")
	case !slices.Contains(strings.Fields(q.Get("scope")), "tools"):
		return nil, errors.New("the scope tools is missing")
	}
	code := rand.Text()
	a.codes[code] = consent{q.Get("client_id"), redirect, q.Get("code_challenge"), q.Get("scope")}
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {a.url}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
	return nil, nil
}

// token gives a token for a code, or for a token that renews one: for each once.
func (a *authority) token(_ http.ResponseWriter, r *http.Request) (any, error) {
	form := func(name string) string { return r.PostFormValue(name) }
	if form("resource") != a.resource {
		return nil, errors.New("an unknown resource")
	}
	var c consent
	var ok bool
	switch form("grant_type") {
	case "authorization_code":
		c, ok = a.codes[form("code")]
		delete(a.codes, form("code"))
		sum := sha256.Sum256([]byte(form("code_verifier")))
		if n := len(form("code_verifier")); n < 43 || n > 128 || base64.RawURLEncoding.EncodeToString(sum[:]) != c.challenge {
			return nil, errors.New("the verifier does not fit the challenge")
		}
		if form("redirect_uri") != c.redirect {
			return nil, errors.New("another redirect_uri than before")
		}
	case "refresh_token":
		c, ok = a.refresh[form("refresh_token")]
		delete(a.refresh, form("refresh_token"))
	}
	if !ok || form("client_id") != c.client {
		return nil, errors.New("an unknown grant, or one of another client")
	}
	access, refresh := rand.Text(), rand.Text()
	a.access[access], a.refresh[refresh] = c, c
	return map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh, "scope": c.scope}, nil
}

func (a *authority) revoke(w http.ResponseWriter, r *http.Request) (any, error) {
	if a.stuck {
		return nil, errors.New("not today")
	}
	token := r.PostFormValue("token")
	for _, of := range []map[string]consent{a.access, a.refresh} {
		if c, ok := of[token]; ok && c.client != r.PostFormValue("client_id") {
			return nil, errors.New("a token of another client")
		}
		delete(of, token)
	}
	w.WriteHeader(http.StatusOK)
	return nil, nil
}

func (a *authority) userInfo(_ http.ResponseWriter, r *http.Request) (any, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if c, ok := a.access[token]; !ok || !slices.Contains(strings.Fields(c.scope), "openid") {
		return nil, errors.New("an unknown token")
	}
	return map[string]string{"sub": "1", "preferred_username": "ada"}, nil
}
