package oauth

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/sallyport/sallyport/internal/store"
)

func inAMinute() int64 { return time.Now().Add(time.Minute).Unix() }

func TestGrant(t *testing.T) {
	for _, test := range []struct {
		name, method string
		client       func(s *strict) Client
		scopes       []string // in addition
		want         []string // scopes
		form         string   // that the token endpoint was asked for
	}{
		{"a secret in the header", "client_secret_basic", func(*strict) Client {
			return Client{Grant: Credentials, ID: "robot", Secret: "se:cret%"}
		}, nil, []string{"read"}, "read"},
		{"a secret in the form", "client_secret_post", func(*strict) Client {
			return Client{Grant: Credentials, ID: "robot", Secret: "se:cret%", Scopes: []string{"mine"}}
		}, nil, []string{"mine"}, "mine"},
		{"a private key", "private_key_jwt", func(*strict) Client {
			return Client{Grant: Credentials, ID: "robot", Key: pkcs8(t, "P-256"), Algorithm: "ES256"}
		}, []string{"write", "read"}, []string{"read", "write"}, "read write"},
		{"a workload", "", func(s *strict) Client {
			return Client{Grant: Workload, Assertion: sign(t, "Ed25519", jwt.MapClaims{"aud": s.URL, "exp": inAMinute()})}
		}, nil, []string{"read"}, "read"},
		{"a workload that names the token endpoint", "", func(s *strict) Client {
			return Client{Grant: Workload, Assertion: sign(t, "Ed25519", jwt.MapClaims{"aud": []string{s.URL + "/token", s.URL}, "exp": inAMinute()})}
		}, nil, []string{"read"}, "read"},
		{"a workload with a client ID", "none", func(s *strict) Client {
			return Client{Grant: Workload, ID: "robot", Assertion: sign(t, "Ed25519", jwt.MapClaims{"aud": s.URL, "exp": inAMinute()})}
		}, nil, []string{"read"}, "read"},
		{"an enterprise", "client_secret_basic", func(s *strict) Client {
			return Client{
				Grant: Enterprise, ID: "robot", Secret: "se:cret%", IdP: IdP{Issuer: s.URL, ClientID: "sallyport-at-idp"},
				Assertion: sign(t, "P-256", jwt.MapClaims{"iss": s.URL, "aud": "sallyport-at-idp", "exp": inAMinute()}),
			}
		}, nil, []string{"read"}, ""},
	} {
		for _, proofs := range []bool{false, true} {
			name := test.name
			if proofs {
				name += " with proofs"
			}
			t.Run(name, func(t *testing.T) {
				s := newStrict(t)
				s.Method, s.Proofs, s.Nonces, s.Refresh = test.method, proofs, proofs, true
				r, err := s.login(test.client(s)).grant(t.Context(), challenge{}, test.scopes)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(r.Scopes, test.want) || s.asked[len(s.asked)-1].Get("scope") != test.form {
					t.Errorf("got the scopes %q, and requested %q; want %q and %q", r.Scopes, s.asked[len(s.asked)-1].Get("scope"), test.want, test.form)
				}
				if r.Server != "files" || r.URL != s.URL+"/mcp" || r.Resource != s.URL+"/mcp" || r.Party.Issuer != s.URL || r.Since.IsZero() || r.Expires.IsZero() {
					t.Errorf("got the record %+v", r)
				}
				if r.Refresh != "" {
					t.Errorf("got the refresh token %q, want none", r.Refresh)
				}
				if r.DPoP != proofs {
					t.Errorf("got a bound token: %v, want %v", r.DPoP, proofs)
				}
			})
		}
	}
}

// TestGrantRefused checks that a refusal is final: no other attempt, no other grant.
func TestGrantRefused(t *testing.T) {
	for _, test := range []struct {
		name     string
		client   func(s *strict) Client
		method   string
		want     string
		requests int
	}{
		{"another secret", func(*strict) Client {
			return Client{Grant: Credentials, ID: "robot", Secret: "hunter2"}
		}, "client_secret_basic", "invalid_client", 1},
		{"another key", func(*strict) Client {
			return Client{Grant: Credentials, ID: "robot", Key: pkcs8(t, "other P-256")}
		}, "private_key_jwt", "invalid_client", 1},
		{"something that is not a key", func(*strict) Client {
			return Client{Grant: Credentials, ID: "robot", Key: "hunter2"}
		}, "private_key_jwt", "not in PEM form", 0},
		{"an algorithm for other keys", func(*strict) Client {
			return Client{Grant: Credentials, ID: "robot", Key: pkcs8(t, "P-256"), Algorithm: "RS256"}
		}, "private_key_jwt", "it can with ES256", 0},
		{"an assertion for another server", func(*strict) Client {
			return Client{Grant: Workload, Assertion: sign(t, "Ed25519", jwt.MapClaims{"aud": "https://wrong.example", "exp": inAMinute()})}
		}, "", "not for", 0},
		{"an assertion for another server, where it must be sent", func(s *strict) Client {
			return Client{Grant: Workload, Issuer: s.URL, Assertion: sign(t, "Ed25519", jwt.MapClaims{"aud": "https://wrong.example", "exp": inAMinute()})}
		}, "", "invalid_grant", 1},
		{"an assertion that is no JWT", func(*strict) Client {
			return Client{Grant: Workload, Assertion: "opaque"}
		}, "", "not for", 0},
		{"an assertion that has expired", func(s *strict) Client {
			return Client{Grant: Workload, Assertion: sign(t, "Ed25519", jwt.MapClaims{"aud": s.URL, "exp": 1})}
		}, "", "invalid_grant", 1},
		{"an assertion of somebody else", func(s *strict) Client {
			return Client{Grant: Workload, Assertion: sign(t, "P-256", jwt.MapClaims{"aud": s.URL, "exp": inAMinute()})}
		}, "", "invalid_grant", 1},
		{"an ID token for another client", func(s *strict) Client {
			return Client{
				Grant: Enterprise, ID: "robot", Secret: "se:cret%", IdP: IdP{Issuer: s.URL, ClientID: "sallyport-at-idp"},
				Assertion: sign(t, "P-256", jwt.MapClaims{"iss": s.URL, "aud": "another", "exp": inAMinute()}),
			}
		}, "client_secret_basic", "did not vouch", 1},
		{"no login at the provider", func(s *strict) Client {
			return Client{Grant: Enterprise, ID: "robot", Secret: "se:cret%", IdP: IdP{Issuer: s.URL, ClientID: "sallyport-at-idp"}}
		}, "client_secret_basic", "sign in at the identity provider", 0},
		{"nobody", func(*strict) Client { return Client{} }, "none", "a person", 0},
		{"no client ID", func(*strict) Client { return Client{Grant: Credentials, Secret: "hunter2"} }, "none", "no client ID", 0},
		{"no secret", func(*strict) Client { return Client{Grant: Credentials, ID: "robot"} }, "none", "no client secret", 0},
		{"no assertion", func(*strict) Client { return Client{Grant: Workload} }, "none", "no assertion", 0},
		{"no identity provider", func(*strict) Client { return Client{Grant: Enterprise, ID: "robot"} }, "none", "no identity provider", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStrict(t)
			s.Method = test.method
			c := test.client(s)
			r, err := s.login(c).grant(t.Context(), challenge{}, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %+v and the error %v, want one with %q", r, err, test.want)
			}
			if len(s.asked) != test.requests {
				t.Errorf("%d requests to the token endpoint, want %d", len(s.asked), test.requests)
			}
			for _, secret := range []string{c.Secret, c.Assertion, "hunter2"} {
				if secret != "" && strings.Contains(err.Error(), secret) {
					t.Errorf("the error %q has a secret", err)
				}
			}
		})
	}
}

func TestWorkloadTrusts(t *testing.T) {
	a := &authority{Issuer: "https://as.example", Token: "https://as.example/token"}
	for _, test := range []struct {
		audience, issuer string
		want             bool
	}{
		{"https://as.example", "", true},
		{"https://as.example/", "", true},
		{"https://as.example/token", "", true},
		{"https://other.example", "", false},
		{"api://exchange", "", false},
		{"api://exchange", "https://as.example", true},
		{"https://as.example", "https://other.example", false},
	} {
		c := Client{Issuer: test.issuer, Assertion: sign(t, "Ed25519", jwt.MapClaims{"aud": test.audience})}
		if err := c.trusts(a); (err == nil) != test.want || err != nil && !errors.Is(err, ErrHostile) {
			t.Errorf("an assertion for %s with the issuer %q: got the error %v, want trust: %v", test.audience, test.issuer, err, test.want)
		}
	}
}

func TestAssertionOfHostileProvider(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(header map[string]any, claims jwt.MapClaims)
		want   string
	}{
		{"for another authorization server", func(_ map[string]any, c jwt.MapClaims) { c["aud"] = "https://other.example" }, "for another authorization server"},
		{"for two", func(_ map[string]any, c jwt.MapClaims) { c["aud"] = []any{c["aud"], "https://other.example"} }, "for another authorization server"},
		{"for nobody", func(_ map[string]any, c jwt.MapClaims) { delete(c, "aud") }, "for another authorization server"},
		{"of another provider", func(_ map[string]any, c jwt.MapClaims) { c["iss"] = "https://other.example" }, "for another authorization server"},
		{"an access token", func(h map[string]any, _ jwt.MapClaims) { h["typ"] = "at+jwt" }, "something other than an assertion"},
		{"said to be an access token", func(h map[string]any, _ jwt.MapClaims) { h["issued"] = "urn:ietf:params:oauth:token-type:access_token" }, "something other than an assertion"},
		{"with odd claims", func(_ map[string]any, c jwt.MapClaims) { c["aud"] = 7 }, "something other than an assertion"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStrict(t)
			s.JAG = test.change
			_, err := s.login(Client{
				Grant: Enterprise, ID: "robot", Secret: "se:cret%", IdP: IdP{Issuer: s.URL, ClientID: "sallyport-at-idp"},
				Assertion: sign(t, "P-256", jwt.MapClaims{"iss": s.URL, "aud": "sallyport-at-idp", "exp": inAMinute()}),
			}).grant(t.Context(), challenge{}, nil)
			if !errors.Is(err, ErrHostile) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got the error %v, want one with %q", err, test.want)
			}
			if len(s.asked) != 1 {
				t.Errorf("%d requests to token endpoints, want only the provider's", len(s.asked))
			}
		})
	}
}

func TestTakeIdentity(t *testing.T) {
	const issuer = "https://idp.example"
	idp := &Server{Name: issuer, URL: issuer, Client: Client{ID: "us", Issuer: issuer, IdP: IdP{Issuer: issuer, ClientID: "us"}}}
	good := jwt.MapClaims{"iss": issuer + "/", "aud": []string{"them", "us"}, "exp": 4102444800}
	for _, test := range []struct {
		name   string
		token  string
		server *Server
		want   error
		taken  bool
	}{
		{"a good one", sign(t, "P-256", good), idp, nil, true},
		{"at another server", sign(t, "P-256", good), &Server{Name: "files", Client: Client{Grant: Enterprise, IdP: idp.Client.IdP}}, nil, false},
		{"none", "", idp, ErrSignIn, false},
		{"no token", "opaque", idp, ErrHostile, false},
		{"for another client", sign(t, "P-256", jwt.MapClaims{"iss": issuer, "aud": "them", "exp": 4102444800}), idp, ErrHostile, false},
		{"of another provider", sign(t, "P-256", jwt.MapClaims{"iss": "https://other.example", "aud": "us", "exp": 4102444800}), idp, ErrHostile, false},
		{"for ever", sign(t, "P-256", jwt.MapClaims{"iss": issuer, "aud": "us"}), idp, ErrHostile, false},
	} {
		expires := time.Unix(1, 0)
		r := &record{Expires: expires}
		err := r.takeIdentity(test.server, &granted{ID: test.token})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: got the error %v, want %v", test.name, err, test.want)
		}
		if test.taken {
			expires = time.Unix(4102444800, 0)
		}
		if (r.ID != "") != test.taken || !r.Expires.Equal(expires) {
			t.Errorf("%s: got the ID token %q until %v, want until %v", test.name, r.ID, r.Expires, expires)
		}
	}
}

func TestOneProvider(t *testing.T) {
	login := func(name, id string) *Login {
		return New(store.At(t.TempDir()), Options{}).At(Server{Name: name, URL: "https://" + name + ".example/mcp", Client: Client{
			Grant: Enterprise, ID: id, Secret: "s", Scopes: []string{"x"}, Assertion: "a", Key: "k",
			IdP: IdP{Issuer: "https://idp.example", ClientID: "us", ClientSecret: "ours"},
		}})
	}
	a, b := login("a", "1").provider().server, login("b", "2").provider().server
	if a.Name != b.Name || a.URL != b.URL || a.Client.ID != b.Client.ID || a.Client.Grant != b.Client.Grant {
		t.Errorf("got the logins %+v and %+v at the provider, want one", a, b)
	}
	if c := a.Client; c.ID != "us" || c.Secret != "ours" || c.Issuer != "https://idp.example" || c.Assertion+c.Key != "" || len(c.Scopes) != 0 {
		t.Errorf("the provider's client is %+v, with something of a server's", c)
	}
	if !a.isProvider() || login("a", "1").server.isProvider() {
		t.Error("the provider and its server are not told apart")
	}
}

func FuzzIdentity(f *testing.F) {
	const issuer = "https://idp.example"
	f.Add(sign(f, "P-256", jwt.MapClaims{"iss": issuer, "aud": "us", "exp": 4102444800}))
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		s := &Server{URL: issuer, Client: Client{ID: "us", Issuer: issuer, IdP: IdP{Issuer: issuer, ClientID: "us"}}}
		r := &record{}
		if err := r.takeIdentity(s, &granted{ID: token}); (err == nil) != (r.ID != "") || err != nil && !r.Expires.IsZero() {
			t.Errorf("got the record %+v and the error %v", r, err)
		}
	})
}
