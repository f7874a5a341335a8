package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// jwtBearer is the grant that gives a token for an assertion (RFC 7523).
const jwtBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

// grant obtains a token without a person, as the definition says. scopes are wanted
// in addition to those that the definition, the challenge or the server's metadata
// say. The caller has locked the login's record and saves what is returned. An
// error wraps ErrSignIn if a person has to sign in at the identity provider.
func (l *Login) grant(ctx context.Context, c challenge, scopes []string) (*record, error) {
	if err := l.server.Client.complete(); err != nil {
		return nil, err
	}
	a, err := discover(ctx, &l.server, c)
	if err != nil {
		return nil, err
	}
	p := &party{Issuer: a.Issuer, Token: a.Token, Revocation: a.Revocation, Method: "none"}
	// A workload's assertion says who it is. It needs no registration.
	if l.server.Client.ID != "" {
		if p, err = l.logins.join(ctx, &l.server, a, ""); err != nil {
			return nil, err
		}
	}
	return l.obtain(ctx, a, p, scopes)
}

// complete reports what a definition lacks for its grant.
func (c *Client) complete() error {
	var lacks string
	switch {
	case c.Grant == Person:
		return fmt.Errorf("%w: only a person can obtain a token of this server", ErrSignIn)
	case c.Grant != Workload && c.ID == "":
		lacks = "client ID"
	case c.Grant == Credentials && c.Secret == "" && c.Key == "":
		lacks = "client secret and no private key"
	case c.Grant == Workload && c.Assertion == "":
		lacks = "assertion"
	case c.Grant == Enterprise && (c.IdP.Issuer == "" || c.IdP.ClientID == ""):
		lacks = "identity provider with an issuer and a client ID"
	default:
		return nil
	}
	return fmt.Errorf("the server's definition has no %s, which the grant %q needs", lacks, c.Grant)
}

// obtain requests a token as the party.
func (l *Login) obtain(ctx context.Context, a *authority, p *party, scopes []string) (*record, error) {
	s := &l.server
	if err := p.bind(a); err != nil {
		return nil, err
	}
	scopes = scopesFor(s, a, scopes)
	form := url.Values{"resource": {a.Resource}}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	switch s.Client.Grant {
	case Credentials:
		form.Set("grant_type", "client_credentials")
	case Workload:
		if err := s.Client.trusts(a); err != nil {
			return nil, err
		}
		form.Set("grant_type", jwtBearer)
		form.Set("assertion", s.Client.Assertion)
	case Enterprise:
		jag, err := l.vouched(ctx, a, scopes)
		if err != nil {
			return nil, err
		}
		form.Set("grant_type", jwtBearer)
		form.Set("assertion", jag)
		form.Del("scope") // the assertion has it
	}
	g, err := p.request(ctx, s.HTTP, form)
	if err != nil {
		return nil, fmt.Errorf("the authorization server %s gave no token: %w", a.Issuer, err)
	}
	r := &record{
		Server: s.Name, URL: s.URL, Resource: a.Resource, Party: *p,
		Access: g.Access, DPoP: g.Type == typeDPoP, Expires: g.Expires, Scopes: g.Scopes, Since: time.Now(),
	}
	if r.Scopes == nil {
		r.Scopes = scopes
	}
	// A refresh token would outlive what the token was given for. The grant itself
	// renews the token.
	return r, nil
}

// trusts reports why a workload's assertion must not reach an authorization server,
// which the MCP server chose: another than the assertion is for could use it there.
func (c *Client) trusts(a *authority) error {
	if c.Issuer != "" && sameIssuer(c.Issuer, a.Issuer) {
		return nil
	}
	claims, _ := unverified(c.Assertion)
	for _, audience := range claims.Audience {
		if c.Issuer == "" && (sameIssuer(audience, a.Issuer) || audience == a.Token) {
			return nil
		}
	}
	return fmt.Errorf("%w: the server names the authorization server %s, which the workload's assertion is not for: if it is right, put it into the definition as issuer", ErrHostile, a.Issuer)
}

// scopesFor returns the scopes to request: those of the definition or else of the
// challenge or the metadata, and more.
func scopesFor(s *Server, a *authority, more []string) []string {
	if len(s.Client.Scopes) > 0 {
		return union(s.Client.Scopes, more)
	}
	return union(a.Scopes, more)
}

// vouched asks the identity provider for an assertion (an Identity Assertion JWT
// Authorization Grant) that tells the authorization server, and only it, who the
// user is.
func (l *Login) vouched(ctx context.Context, a *authority, scopes []string) (string, error) {
	idp := l.provider()
	token := l.server.Client.Assertion
	if token == "" {
		r, err := idp.usable(ctx)
		if errors.Is(err, ErrSignIn) || err == nil && (r == nil || r.ID == "") {
			return "", fmt.Errorf("%w at the identity provider %s", ErrSignIn, idp.server.URL)
		}
		if err != nil {
			return "", fmt.Errorf("the login at the identity provider: %w", err)
		}
		token = r.ID
	}
	at, err := discoverProvider(ctx, &idp.server)
	if err != nil {
		return "", err
	}
	p, err := l.logins.join(ctx, &idp.server, at, "")
	if err != nil {
		return "", err
	}
	return p.exchange(ctx, idp.server.HTTP, token, a, scopes)
}

// exchange returns an assertion for an authorization server in exchange for an ID
// token of the user (RFC 8693), as this client of the identity provider.
func (p *party) exchange(ctx context.Context, client *http.Client, token string, a *authority, scopes []string) (string, error) {
	form := url.Values{
		"grant_type":           {oauthex.GrantTypeTokenExchange},
		"requested_token_type": {oauthex.TokenTypeIDJAG},
		"subject_token_type":   {oauthex.TokenTypeIDToken},
		"subject_token":        {token},
		"audience":             {a.Issuer},
		"resource":             {a.Resource},
	}
	if len(scopes) > 0 {
		form.Set("scope", strings.Join(scopes, " "))
	}
	status, _, body, err := p.post(ctx, client, p.Token, form, "")
	if err == nil && status != http.StatusOK {
		err = decodeRefused(status, body)
	}
	if err != nil {
		return "", fmt.Errorf("the identity provider %s did not vouch for the user at %s: %w", p.Issuer, a.Issuer, err)
	}
	var answer struct {
		Token string `json:"access_token"`
		Type  string `json:"issued_token_type"`
	}
	err = json.Unmarshal(body, &answer)
	claims, kind := unverified(answer.Token)
	if err != nil || answer.Type != oauthex.TokenTypeIDJAG || kind != "oauth-id-jag+jwt" {
		return "", fmt.Errorf("%w: the identity provider %s gave something other than an assertion", ErrHostile, p.Issuer)
	}
	if !sameIssuer(claims.Issuer, p.Issuer) || len(claims.Audience) != 1 || !sameIssuer(claims.Audience[0], a.Issuer) {
		return "", fmt.Errorf("%w: the identity provider %s gave an assertion for another authorization server than %s", ErrHostile, p.Issuer, a.Issuer)
	}
	return answer.Token, nil
}

// unverified returns what a JWT says, and of which type it is; nothing if it is not
// one. Whoever it is for checks its signature. But what an identity provider gives
// for another server must not reach this one, nor what is not an assertion, such as
// an access token.
func unverified(token string) (claims jwt.RegisteredClaims, kind any) {
	if visible(token, maxToken) {
		if t, _, err := jwt.NewParser().ParseUnverified(token, &claims); err == nil {
			return claims, t.Header["typ"]
		}
	}
	return jwt.RegisteredClaims{}, nil
}

// sameIssuer compares issuers. One slash at the end is no difference, as with
// metadata.
func sameIssuer(a, b string) bool {
	return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/")
}

// provider returns the user's login at the identity provider, which is one for all
// of its servers.
func (l *Login) provider() *Login {
	idp := l.server.Client.IdP
	client := idp.HTTP
	if client == nil {
		client = l.server.HTTP
	}
	return l.logins.At(Server{
		Name: idp.Issuer, URL: idp.Issuer, HTTP: client, Keyring: l.server.Keyring,
		Client: Client{ID: idp.ClientID, Secret: idp.ClientSecret, Issuer: idp.Issuer, IdP: idp},
	})
}

// isProvider reports whether the server is an identity provider, where a person
// signs in for other servers.
func (s *Server) isProvider() bool { return s.Client.Grant == Person && s.Client.IdP.Issuer != "" }

// signInProvider signs the user in at the identity provider of the login's server,
// unless that has happened. open is that of SignIn.
func (l *Login) signInProvider(ctx context.Context, open func(want string) (Redirect, error)) error {
	if l.server.Client.Assertion != "" {
		return nil
	}
	idp := l.provider()
	r, err := idp.usable(ctx)
	if errors.Is(err, ErrSignIn) || err == nil && (r == nil || r.ID == "") {
		_, err = idp.SignIn(ctx, nil, open)
	}
	return err
}

// takeIdentity takes over who the user is from an answer of an identity provider's
// token endpoint, into the record of the login there. Such a record is worth as
// much as its ID token, and expires with it. For other logins it does nothing.
func (r *record) takeIdentity(s *Server, g *granted) error {
	if !s.isProvider() {
		return nil
	}
	if g.ID == "" {
		return fmt.Errorf("%w: the identity provider %s gave no ID token", ErrSignIn, s.URL)
	}
	claims, _ := unverified(g.ID)
	if claims.ExpiresAt == nil || !sameIssuer(claims.Issuer, s.Client.Issuer) || !slices.Contains(claims.Audience, s.Client.ID) {
		return fmt.Errorf("%w: the identity provider %s gave an ID token that is not for this client", ErrHostile, s.URL)
	}
	r.ID, r.Expires = g.ID, claims.ExpiresAt.Time
	return nil
}

// discoverProvider finds an identity provider's endpoints. It protects no resource.
func discoverProvider(ctx context.Context, s *Server) (*authority, error) {
	a, err := authorityOf(ctx, s, s.Client.Issuer)
	if err != nil {
		return nil, err
	}
	a.Resource, a.Scopes = "", []string{"openid"}
	return a, nil
}
