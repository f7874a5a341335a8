package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

const (
	maxClientID = 2 << 10
	maxSecret   = 16 << 10
	// lasting is how long a registration must last from now on, so that a sign-in
	// that is begun with it can end.
	lasting = time.Hour
)

// Ways in which a client authenticates itself at a token endpoint.
const (
	methodNone  = "none"
	methodPost  = "client_secret_post"
	methodBasic = "client_secret_basic"
	methodKey   = "private_key_jwt"
)

// join returns this client at an authorization server: with the credentials of
// the definition, as a document describes it, or registered there, in this order.
// redirect is what browsers return to; empty for grants without a person. A
// registration from an earlier time is used again if it is for the same redirect.
func (l *Logins) join(ctx context.Context, s *Server, a *authority, redirect string) (*party, error) {
	p := &party{Issuer: a.Issuer, Token: a.Token, Revocation: a.Revocation, Register: a.Registration}
	switch {
	case s.Client.ID != "":
		if err := l.checkIssuer(ctx, s, a); err != nil {
			return nil, err
		}
		return p, p.given(&s.Client, a)
	case a.Metadata && l.opts.Metadata != "":
		if !isDocument(l.opts.Metadata) {
			return nil, errors.New("the URL of the document about this client must begin with https:// and have a path")
		}
		p.ID, p.Method = l.opts.Metadata, methodNone
		return p, nil
	case redirect == "":
		return nil, fmt.Errorf("the definition of %s needs a client ID for its grant: register this client at %s by hand", s.Name, printable(a.Issuer))
	case a.Registration == "":
		return nil, fmt.Errorf("the authorization server %s does not register clients on request: register this client there by hand and put its client ID into the definition of %s", printable(a.Issuer), s.Name)
	}
	unlock, err := l.lock(a.Issuer)
	if err != nil {
		return nil, err
	}
	defer unlock()
	known, err := l.registration(ctx, s.Keyring, a.Issuer)
	if err != nil {
		return nil, err
	}
	if known.serves(a, redirect, time.Now()) {
		p.ID, p.Secret, p.Method, p.Redirect, p.Ends = known.ID, known.Secret, known.Method, known.Redirect, known.Ends
		return p, nil
	}
	if err := p.register(ctx, s.HTTP, a, redirect); err != nil {
		return nil, fmt.Errorf("the authorization server %s did not register this client: %w", printable(a.Issuer), err)
	}
	return p, l.keep(ctx, s.Keyring, a.Issuer, p)
}

// checkIssuer refuses to use the credentials of the definition at an authorization
// server that they do not belong to.
func (l *Logins) checkIssuer(ctx context.Context, s *Server, a *authority) error {
	if want := s.Client.Issuer; want != "" {
		if !sameIssuer(want, a.Issuer) {
			return hostile("the client ID of %s belongs to %s, and the server names the authorization server %s", s.Name, printable(want), printable(a.Issuer))
		}
		return nil
	}
	r, err := l.load(ctx, s.Keyring, l.At(*s).key)
	if err != nil {
		return err
	}
	if r != nil && r.Party.ID == s.Client.ID && !sameIssuer(r.Party.Issuer, a.Issuer) {
		return hostile("the client ID of %s was used at %s until now, and the server names the authorization server %[3]s: if that is right, sign out with 'sallyport servers logout %[1]s', or put the issuer %[3]s into the definition", s.Name, printable(r.Party.Issuer), printable(a.Issuer))
	}
	return nil
}

// given takes over the credentials of a definition.
func (p *party) given(c *Client, a *authority) (err error) {
	p.ID = c.ID
	if c.Key != "" {
		p.Key, p.Algorithm, p.Method = c.Key, c.Algorithm, methodKey
		return nil
	}
	if p.Method, err = methodFor(a.Methods, c.Secret != ""); err == nil && p.Method != methodNone {
		p.Secret = c.Secret
	}
	return err
}

// methodFor chooses how a client with or without a secret authenticates itself.
func methodFor(supported []string, secret bool) (string, error) {
	switch {
	case !secret:
		return methodNone, nil
	case slices.Contains(supported, methodPost):
		return methodPost, nil
	case len(supported) == 0 || slices.Contains(supported, methodBasic): // the default of RFC 8414
		return methodBasic, nil
	case slices.Contains(supported, methodNone):
		return methodNone, nil
	}
	return "", fmt.Errorf("the authorization server accepts no client secret, only %s", printable(strings.Join(supported, ", ")))
}

// serves reports whether a registration can be used again. p may be nil.
func (p *party) serves(a *authority, redirect string, now time.Time) bool {
	return p != nil && p.ID != "" && p.Redirect == redirect && p.Register == a.Registration &&
		(p.Ends.IsZero() || now.Add(lasting).Before(p.Ends))
}

// register registers this client at an authorization server (RFC 7591).
func (p *party) register(ctx context.Context, client *http.Client, a *authority, redirect string) error {
	method, err := methodFor(a.Methods, len(a.Methods) > 0 && !slices.Contains(a.Methods, methodNone))
	if err != nil {
		return err
	}
	seen := &observer{next: client.Transport}
	watched := *client
	watched.Transport = seen
	r, err := oauthex.RegisterClient(ctx, a.Registration, &oauthex.ClientRegistrationMetadata{
		ClientName: "Sallyport", ApplicationType: "native", RedirectURIs: []string{redirect},
		GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
		TokenEndpointAuthMethod: method,
	}, &watched)
	if err != nil {
		return seen.explain(ctx, err)
	}
	p.ID, p.Secret, p.Redirect, p.Ends = r.ClientID, r.ClientSecret, redirect, r.ClientSecretExpiresAt
	switch {
	case !isCredential(p.ID, maxClientID):
		return hostile("the client ID that it gave is too long or has characters that a client ID cannot have")
	case p.Secret != "" && !isCredential(p.Secret, maxSecret):
		return hostile("the client secret that it gave is too long or has characters that a secret cannot have")
	}
	switch p.Method = r.TokenEndpointAuthMethod; p.Method {
	case "": // then the secret says what it means
		p.Method, err = methodFor(a.Methods, p.Secret != "")
	case methodPost, methodBasic:
		if p.Secret == "" {
			err = hostile("it gave no client secret")
		}
	case methodNone:
	default:
		err = hostile("it wants this client to authenticate itself in a way that was not asked for: %s", printable(p.Method))
	}
	if p.Method == methodNone {
		p.Secret, p.Ends = "", time.Time{}
	}
	return err
}

// isCredential reports whether s can be a client ID or secret: printable ASCII (RFC
// 6749, appendix A).
func isCredential(s string, longest int) bool {
	return len(s) <= longest && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// isDocument reports whether a URL can be that of a Client ID Metadata Document.
func isDocument(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && u.Host != "" && strings.Trim(u.Path, "/") != "" && u.Fragment == "" && u.User == nil
}

// observer sees the status of the last response, which oauthex's errors have only
// as text.
type observer struct {
	next   http.RoundTripper
	status int
}

func (o *observer) RoundTrip(r *http.Request) (*http.Response, error) {
	next := o.next
	if next == nil {
		next = http.DefaultTransport
	}
	response, err := next.RoundTrip(r)
	if err == nil {
		o.status = response.StatusCode
	}
	return response, err
}

// explain returns an error of oauthex.RegisterClient without what the server sent,
// which can contain a secret, except its own words about an error.
func (o *observer) explain(ctx context.Context, err error) error {
	var (
		refused *oauthex.ClientRegistrationError
		rule    ruleError
		network net.Error
	)
	switch {
	case errors.As(err, &refused) && refused.ErrorCode != "":
		return errors.New(printable(strings.TrimSpace(refused.ErrorCode + " " + refused.ErrorDescription)))
	case errors.As(err, &rule), errors.As(err, &network), o.status == 0:
		return failure(ctx, err)
	case o.status == http.StatusOK || o.status == http.StatusCreated:
		return hostile("its answer cannot be read")
	}
	return fmt.Errorf("HTTP status %d", o.status)
}
