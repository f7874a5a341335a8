package oauth

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/sallyport/sallyport/internal/store"
)

// strict is an authorization server, a resource at /mcp that trusts it, and an
// identity provider, all at one address. It checks all that clients can get wrong.
type strict struct {
	*httptest.Server
	t *testing.T

	Method  string // how the client robot authenticates itself
	Proofs  bool   // tokens are bound to keys, if the client can
	Nonces  bool   // the token endpoint and the resource each want a nonce
	Refresh bool   // answers have a refresh token that nobody asked for
	Refuses string // what the token endpoint refuses requests with
	// JAG changes what the identity provider gives; header also has the type that its
	// answer says.
	JAG func(header map[string]any, claims jwt.MapClaims)
	// Provider is the issuer of ID tokens; empty: the server.
	Provider string

	mu      sync.Mutex
	seen    map[string]bool   // the identifiers of proofs and assertions
	tokens  map[string]string // and the keys that they are bound to
	asked   []url.Values      // of the token endpoint
	refused int               // answers that want a nonce
}

func newStrict(t *testing.T) *strict {
	s := &strict{t: t, Method: "client_secret_basic", seen: map[string]bool{}, tokens: map[string]string{}}
	mux := http.NewServeMux()
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	mux.Handle("/.well-known/oauth-protected-resource/mcp", auth.ProtectedResourceMetadataHandler(&oauthex.ProtectedResourceMetadata{
		Resource: s.URL + "/mcp", AuthorizationServers: []string{s.URL}, ScopesSupported: []string{"read"},
	}))
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, r *http.Request) {
		m := map[string]any{
			"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{s.Method},
		}
		if s.Proofs {
			m["dpop_signing_alg_values_supported"] = []string{"RS256", "ES256"}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(m)
	})
	mux.HandleFunc("/token", s.token)
	mux.HandleFunc("/mcp", s.resource)
	return s
}

// login is a login at the resource.
func (s *strict) login(c Client) *Login {
	return New(store.At(s.t.TempDir()), Options{}).At(Server{Name: "files", URL: s.URL + "/mcp", Client: c, HTTP: s.Client()})
}

func (s *strict) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := r.ParseForm(); err != nil {
		s.t.Error(err)
	}
	s.asked = append(s.asked, r.PostForm)
	answer, err := s.answer(r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		if err.Error() == "use_dpop_nonce" {
			w.Header().Set("DPoP-Nonce", "token-nonce")
		}
		w.WriteHeader(http.StatusBadRequest)
		code, description, _ := strings.Cut(err.Error(), ": ")
		answer = map[string]any{"error": code, "error_description": description}
	}
	json.NewEncoder(w).Encode(answer)
}

func (s *strict) answer(r *http.Request) (map[string]any, error) {
	if s.Refuses != "" {
		return nil, errors.New(s.Refuses)
	}
	form := r.PostForm
	grant := form.Get("grant_type")
	if grant == oauthex.GrantTypeTokenExchange {
		return s.exchange(form)
	}
	if err := s.authenticate(r); err != nil {
		return nil, fmt.Errorf("invalid_client: %w", err)
	}
	switch grant {
	case "client_credentials":
	case jwtBearer:
		key, claims := "Ed25519", jwt.MapClaims{}
		parsed, err := jwt.ParseWithClaims(form.Get("assertion"), claims, func(t *jwt.Token) (any, error) {
			if t.Header["typ"] == "oauth-id-jag+jwt" {
				key = "RSA"
			}
			return testKeys()[key].Public(), nil
		}, jwt.WithAudience(s.URL), jwt.WithExpirationRequired())
		if err != nil {
			return nil, fmt.Errorf("invalid_grant: %w", err)
		}
		if parsed.Header["typ"] == "oauth-id-jag+jwt" && (claims["client_id"] != "robot" || claims["resource"] != s.URL+"/mcp") {
			return nil, fmt.Errorf("invalid_grant: the assertion is for %v at %v", claims["client_id"], claims["resource"])
		}
	default:
		return nil, errors.New("unsupported_grant_type: " + grant)
	}
	if got := form["resource"]; !slices.Equal(got, []string{s.URL + "/mcp"}) {
		return nil, fmt.Errorf("invalid_target: %q", got)
	}
	kind, thumb := "Bearer", ""
	if s.Proofs {
		var err error
		if thumb, err = s.proof(r, "", "token-nonce"); err != nil {
			return nil, err
		}
		kind = "DPoP"
	} else if r.Header.Get("DPoP") != "" {
		return nil, errors.New("invalid_dpop_proof: nobody asked for one")
	}
	token := fmt.Sprintf("token-%d", len(s.asked))
	s.tokens[token] = thumb
	answer := map[string]any{"access_token": token, "token_type": kind, "expires_in": 60}
	if s.Refresh {
		answer["refresh_token"] = "for-ever"
	}
	return answer, nil
}

// exchange is what the identity provider does with an ID token.
func (s *strict) exchange(form url.Values) (map[string]any, error) {
	_, err := jwt.Parse(form.Get("subject_token"), func(*jwt.Token) (any, error) { return testKeys()["P-256"].Public(), nil },
		jwt.WithAudience("sallyport-at-idp"), jwt.WithIssuer(cmp.Or(s.Provider, s.URL)), jwt.WithExpirationRequired())
	if err != nil {
		return nil, fmt.Errorf("invalid_grant: %w", err)
	}
	want := url.Values{
		"client_id": {"sallyport-at-idp"}, "grant_type": form["grant_type"], "subject_token": form["subject_token"],
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:id_token"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:id-jag"},
		"audience":             {s.URL}, "resource": {s.URL + "/mcp"}, "scope": {"read"},
	}
	if !maps.EqualFunc(form, want, slices.Equal) {
		return nil, fmt.Errorf("invalid_request: got %v, want %v", form, want)
	}
	header := map[string]any{"typ": "oauth-id-jag+jwt", "alg": "RS256", "issued": form.Get("requested_token_type")}
	claims := jwt.MapClaims{
		"iss": s.URL, "sub": "ada", "aud": s.URL, "client_id": "robot", "jti": "1",
		"resource": s.URL + "/mcp", "exp": time.Now().Add(time.Minute).Unix(),
	}
	if s.JAG != nil {
		s.JAG(header, claims)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header = header
	signed, err := token.SignedString(testKeys()["RSA"])
	return map[string]any{"access_token": signed, "issued_token_type": header["issued"], "token_type": "N_A"}, err
}

func (s *strict) authenticate(r *http.Request) error {
	form := r.PostForm
	id, secret, basic := r.BasicAuth()
	id, err := url.QueryUnescape(id)
	secret, err2 := url.QueryUnescape(secret)
	switch got := map[string]bool{
		"none":                form.Has("client_id") && !form.Has("client_secret"),
		"":                    !basic && form.Get("client_id") == "" && !form.Has("client_assertion"),
		"client_secret_basic": basic && !form.Has("client_secret"),
		"client_secret_post":  form.Has("client_secret") && !basic,
		"private_key_jwt":     form.Get("client_assertion_type") == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
	}; {
	case err != nil || err2 != nil || !got[s.Method]:
		return fmt.Errorf("want the method %q", s.Method)
	case s.Method == "client_secret_basic" && (id != "robot" || secret != "se:cret%"),
		s.Method == "client_secret_post" && (form.Get("client_id") != "robot" || form.Get("client_secret") != "se:cret%"),
		s.Method == "none" && form.Get("client_id") != "robot":
		return errors.New("unknown client")
	case s.Method != "private_key_jwt":
		return nil
	}
	var claims jwt.RegisteredClaims
	_, err = jwt.ParseWithClaims(form.Get("client_assertion"), &claims, func(*jwt.Token) (any, error) { return testKeys()["P-256"].Public(), nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(s.URL), jwt.WithIssuer("robot"), jwt.WithSubject("robot"), jwt.WithExpirationRequired())
	if err == nil {
		err = s.once(claims.ID)
	}
	return err
}

func (s *strict) resource(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	thumb, ok := s.tokens[token]
	var err error
	if thumb != "" {
		var got string
		if got, err = s.proof(r, token, "resource-nonce"); err == nil && (got != thumb || scheme != "DPoP") {
			err = errors.New("invalid_token: bound to another key")
		}
	} else if !ok || scheme != "Bearer" {
		err = errors.New("invalid_token")
	}
	if err != nil {
		code, _, _ := strings.Cut(err.Error(), ": ")
		if code == "use_dpop_nonce" {
			w.Header().Set("DPoP-Nonce", "resource-nonce")
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("DPoP error=%q", code))
		http.Error(w, err.Error(), http.StatusUnauthorized)
	}
}

// proof checks a proof and returns the thumbprint of its key (RFC 7638).
func (s *strict) proof(r *http.Request, access, nonce string) (string, error) {
	bad := func(err error) (string, error) { return "", fmt.Errorf("invalid_dpop_proof: %w", err) }
	var thumb string
	proofs := r.Header.Values("DPoP")
	if len(proofs) != 1 {
		return bad(fmt.Errorf("%d proofs", len(proofs)))
	}
	claims := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(proofs[0], claims, func(t *jwt.Token) (any, error) {
		jwk, _ := t.Header["jwk"].(map[string]any)
		x, err := base64.RawURLEncoding.DecodeString(fmt.Sprint(jwk["x"]))
		y, err2 := base64.RawURLEncoding.DecodeString(fmt.Sprint(jwk["y"]))
		if err != nil || err2 != nil || t.Header["typ"] != "dpop+jwt" || len(jwk) != 4 || jwk["kty"] != "EC" || jwk["crv"] != "P-256" {
			return nil, fmt.Errorf("the header %v", t.Header)
		}
		sum := sha256.Sum256(fmt.Appendf(nil, `{"crv":"P-256","kty":"EC","x":"%s","y":"%s"}`, jwk["x"], jwk["y"]))
		thumb = base64.RawURLEncoding.EncodeToString(sum[:])
		return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuedAt())
	if err != nil {
		return bad(err)
	}
	var ath any
	if access != "" {
		sum := sha256.Sum256([]byte(access))
		ath = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	if want := "http://" + r.Host + r.URL.EscapedPath(); claims["htm"] != r.Method || claims["htu"] != want || claims["ath"] != ath {
		return bad(fmt.Errorf("got %v, want %s %s with %v", claims, r.Method, want, ath))
	}
	jti, _ := claims["jti"].(string)
	if err := s.once(jti); err != nil {
		return bad(err)
	}
	if s.Nonces && claims["nonce"] != nonce {
		s.refused++
		return "", errors.New("use_dpop_nonce")
	}
	return thumb, nil
}

func (s *strict) once(id string) error {
	if id == "" || s.seen[id] {
		return fmt.Errorf("%q has been used", id)
	}
	s.seen[id] = true
	return nil
}

// sign returns a token of somebody with a key.
func sign(t testing.TB, key string, claims jwt.MapClaims) string {
	t.Helper()
	methods := map[string]jwt.SigningMethod{"Ed25519": jwt.SigningMethodEdDSA, "P-256": jwt.SigningMethodES256, "other P-256": jwt.SigningMethodES256}
	token, err := jwt.NewWithClaims(methods[key], claims).SignedString(testKeys()[key])
	if err != nil {
		t.Fatal(err)
	}
	return token
}
