package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// authority is the authorization server of a resource.
type authority struct {
	Issuer, Authorization, Token, Registration, Revocation, UserInfo string
	// Methods are how clients can authenticate themselves at the token endpoint.
	Methods []string
	// Resource is the resource indicator for the server.
	Resource string
	// Scopes are what the challenge or else the resource's metadata ask for, and
	// Supported what the authorization server lists.
	Scopes, Supported []string
	// Metadata means that it reads client ID metadata documents, and Names that its
	// redirects name the issuer (RFC 9207).
	Metadata, Names bool
	// Proofs are the algorithms of DPoP that it accepts.
	Proofs []string
	// Grants are the grants that it lists.
	Grants []string

	pkce []string // the methods for proof keys of codes (RFC 7636)
}

const (
	// maxAuthorities is the number of authorization servers that a server may name.
	maxAuthorities = 20
	// maxListed is the number of words that are kept of an authorization server's
	// list.
	maxListed = 1000
)

// discover finds the authorization server of a resource, as the protocol says:
// from the challenge, from the well-known addresses, or (2025-03-26) at the
// resource's own origin. It reads the documents itself instead of with package
// oauthex, whose types it uses: servers name their origin as the resource although
// oauthex wants the complete URL, and its errors do not tell a rule from a failure
// of the network.
func discover(ctx context.Context, s *Server, c challenge) (*authority, error) {
	if s.isProvider() {
		a, err := discoverProvider(ctx, s)
		if err != nil {
			return nil, err
		}
		return a, a.checkPerson()
	}
	server, err := url.Parse(s.URL)
	if err != nil || server.Host == "" {
		return nil, errors.New("the server's URL cannot be read") // the error contains the URL
	}
	server.User, server.Fragment, server.RawFragment = nil, "", ""
	m, err := resourceMetadata(ctx, s, server, c)
	if err != nil {
		return nil, err
	}
	var a *authority
	if m == nil {
		a, err = authorityAt(ctx, s, server)
	} else {
		a, err = namedAuthority(ctx, s, m)
	}
	if err != nil {
		return nil, err
	}
	if c.Scopes != nil {
		a.Scopes = c.Scopes
	}
	if s.Client.Grant != Person {
		return a, nil
	}
	return a, a.checkPerson()
}

// Named reports whether the login's server has metadata that name an authorization
// server.
func (l *Login) Named(ctx context.Context) (bool, error) {
	server, err := url.Parse(l.server.URL)
	if err != nil {
		return false, errors.New("the server's URL cannot be read")
	}
	m, err := resourceMetadata(ctx, &l.server, server, challenge{})
	return m != nil, err
}

// resourceMetadata returns a server's metadata (RFC 9728), and nil if it has none.
func resourceMetadata(ctx context.Context, s *Server, server *url.URL, c challenge) (*oauthex.ProtectedResourceMetadata, error) {
	var unavailable error
	for _, at := range resourceMetadataURLs(server, c) {
		if err := s.checkURL("resource_metadata", at); err != nil {
			return nil, err
		}
		m := &oauthex.ProtectedResourceMetadata{}
		found, err := fetch(ctx, s.HTTP, at, m)
		if errors.Is(err, errUnavailable) {
			unavailable = err
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the metadata of server %s: %w", s.Name, err)
		}
		if !found {
			continue
		}
		if !covers(m.Resource, server) {
			return nil, hostile("the metadata of server %s is that of another resource, %s", s.Name, printable(m.Resource))
		}
		return m, nil
	}
	if unavailable != nil {
		return nil, fmt.Errorf("the metadata of server %s: %w", s.Name, unavailable)
	}
	return nil, nil
}

// resourceMetadataURLs returns where a server's metadata can be: where the
// challenge says, at the well-known path with the server's path, and without.
func resourceMetadataURLs(server *url.URL, c challenge) []string {
	const wellKnown = "/.well-known/oauth-protected-resource"
	root := server.Scheme + "://" + server.Host + wellKnown
	var list []string
	if c.Metadata != "" {
		list = append(list, c.Metadata)
	}
	if path := server.EscapedPath(); path != "" && path != "/" {
		full := root + path
		if server.RawQuery != "" {
			full += "?" + server.RawQuery
		}
		list = append(list, full)
	}
	return append(list, root)
}

// covers reports whether a resource identifier is a server's URL, or its origin or
// a folder above it, as servers publish for all their paths.
func covers(resource string, server *url.URL) bool {
	u, err := url.Parse(resource)
	if err != nil || !visible(resource, maxURL) || u.User != nil || strings.Contains(resource, "#") || originOf(u) != originOf(server) {
		return false
	}
	folder, path := strings.TrimSuffix(u.EscapedPath(), "/"), strings.TrimSuffix(server.EscapedPath(), "/")
	if u.RawQuery != "" {
		return folder == path && u.RawQuery == server.RawQuery
	}
	return folder == path || strings.HasPrefix(path, folder+"/")
}

// namedAuthority returns the authorization server that a server's metadata names.
func namedAuthority(ctx context.Context, s *Server, m *oauthex.ProtectedResourceMetadata) (*authority, error) {
	switch list := m.AuthorizationServers; {
	case len(list) == 0:
		return nil, hostile("the metadata of server %s names no authorization server", s.Name)
	case len(list) > maxAuthorities:
		return nil, hostile("the metadata of server %s names %d authorization servers, at most %d are allowed", s.Name, len(list), maxAuthorities)
	}
	issuer := m.AuthorizationServers[0]
	if want := s.Client.Issuer; want != "" {
		i := slices.IndexFunc(m.AuthorizationServers, func(one string) bool { return sameIssuer(one, want) })
		if i < 0 {
			return nil, hostile("server %s names the authorization server %s, and its definition names %s", s.Name, printable(issuer), printable(want))
		}
		issuer = m.AuthorizationServers[i]
	}
	a, err := authorityOf(ctx, s, issuer)
	if err != nil {
		return nil, err
	}
	a.Resource = m.Resource
	if len(s.Client.Scopes) > 0 {
		return a, nil // those of the metadata do not matter
	}
	if len(m.ScopesSupported) > maxScopes {
		return nil, hostile("the metadata of server %s lists %d scopes, at most %d are requested: name those that you need in its definition", s.Name, len(m.ScopesSupported), maxScopes)
	}
	for _, scope := range m.ScopesSupported {
		if !isWord(scope, maxScope) {
			return nil, hostile("the metadata of server %s lists %q, which is not a scope", s.Name, printable(scope))
		}
	}
	a.Scopes = words(m.ScopesSupported, maxScopes)
	return a, nil
}

// authorityAt returns the authorization server of a server without metadata: that
// of the definition, or as the protocol had it in 2025-03-26 the server's origin,
// with fixed endpoints if that has no metadata either.
func authorityAt(ctx context.Context, s *Server, server *url.URL) (*authority, error) {
	issuer := server.Scheme + "://" + server.Host
	find, at := describe, issuer
	if s.Client.Issuer != "" {
		find, at = authorityOf, s.Client.Issuer
	}
	a, err := find(ctx, s, at)
	if err != nil {
		return nil, err
	}
	if a == nil {
		a = &authority{
			Issuer: issuer, Authorization: issuer + "/authorize", Token: issuer + "/token", Registration: issuer + "/register",
			pkce: []string{"S256"},
		}
	}
	// The query may contain a secret for the server.
	a.Resource = issuer + server.EscapedPath()
	return a, nil
}

// authorityOf reads the metadata of an authorization server (RFC 8414 or OpenID
// Connect Discovery).
func authorityOf(ctx context.Context, s *Server, issuer string) (*authority, error) {
	a, err := describe(ctx, s, issuer)
	if err == nil && a == nil {
		err = fmt.Errorf("the authorization server %s has no metadata", printable(issuer))
	}
	return a, err
}

// describe is authorityOf, and returns nil if there is no metadata.
func describe(ctx context.Context, s *Server, issuer string) (*authority, error) {
	if err := s.checkURL("issuer", issuer); err != nil {
		return nil, err
	}
	var unavailable error
	for _, at := range authorityMetadataURLs(issuer) {
		var m authorityMetadata
		found, err := fetch(ctx, s.HTTP, at, &m)
		if errors.Is(err, errUnavailable) {
			unavailable = err
			continue
		}
		if err == nil && found {
			err = m.check(s, issuer)
		}
		if err != nil {
			return nil, fmt.Errorf("the metadata of authorization server %s: %w", printable(issuer), err)
		}
		if found {
			return m.authority(), nil
		}
	}
	if unavailable != nil {
		return nil, fmt.Errorf("the metadata of authorization server %s: %w", printable(issuer), unavailable)
	}
	return nil, nil
}

// authorityMetadataURLs returns where an issuer's metadata can be: at the
// well-known paths with its path behind them, or for OpenID Connect before.
func authorityMetadataURLs(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	root, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	list := []string{root + "/.well-known/oauth-authorization-server" + path, root + "/.well-known/openid-configuration" + path}
	if path != "" {
		list = append(list, root+path+"/.well-known/openid-configuration")
	}
	return list
}

// authorityMetadata is the metadata of an authorization server, with what package
// oauthex leaves out.
type authorityMetadata struct {
	oauthex.AuthServerMeta
	UserInfo string   `json:"userinfo_endpoint"`
	Proofs   []string `json:"dpop_signing_alg_values_supported"`
}

// check refuses metadata of another issuer, and endpoints that a request must not
// go to.
func (m *authorityMetadata) check(s *Server, issuer string) error {
	if !sameIssuer(m.Issuer, issuer) {
		return hostile("it is that of another issuer, %s", printable(m.Issuer))
	}
	if m.TokenEndpoint == "" {
		return hostile("it has no token_endpoint")
	}
	for _, e := range []struct{ name, address string }{
		{"authorization_endpoint", m.AuthorizationEndpoint},
		{"token_endpoint", m.TokenEndpoint},
		{"registration_endpoint", m.RegistrationEndpoint},
		{"revocation_endpoint", m.RevocationEndpoint},
		{"userinfo_endpoint", m.UserInfo},
	} {
		if e.address == "" {
			continue
		}
		if err := s.checkURL(e.name, e.address); err != nil {
			return err
		}
	}
	return nil
}

func (m *authorityMetadata) authority() *authority {
	return &authority{
		Issuer: m.Issuer, Authorization: m.AuthorizationEndpoint, Token: m.TokenEndpoint,
		Registration: m.RegistrationEndpoint, Revocation: m.RevocationEndpoint, UserInfo: m.UserInfo,
		Methods:   words(m.TokenEndpointAuthMethodsSupported, maxListed),
		Supported: words(m.ScopesSupported, maxListed),
		Metadata:  m.ClientIDMetadataDocumentSupported,
		Names:     m.AuthorizationResponseIssParameterSupported,
		Proofs:    words(m.Proofs, maxListed),
		Grants:    words(m.GrantTypesSupported, maxListed),
		pkce:      words(m.CodeChallengeMethodsSupported, maxListed),
	}
}

// checkPerson refuses an authorization server where a person cannot sign in safely.
func (a *authority) checkPerson() error {
	if a.Authorization == "" {
		return hostile("the authorization server %s has no authorization_endpoint", printable(a.Issuer))
	}
	if !slices.Contains(a.pkce, "S256") {
		return hostile("the authorization server %s does not support PKCE with S256, without which codes can be stolen", printable(a.Issuer))
	}
	// A browser visits it, for which no guard looks at addresses.
	page, err := url.Parse(a.Authorization)
	issuer, err2 := url.Parse(a.Issuer)
	if err := errors.Join(err, err2); err != nil || nearness(page.Hostname()) > nearness(issuer.Hostname()) {
		return hostile("the authorization server %s has its authorization_endpoint at the local address %s", printable(a.Issuer), printable(page.Host))
	}
	return nil
}

// checkURL refuses URLs that no request for signing in goes to. Plain HTTP is for
// loopback, and for the host of a server that is reached so. The client checks
// where a connection really goes.
func (s *Server) checkURL(name, address string) error {
	u, err := url.Parse(address)
	if err != nil || !visible(address, maxURL) {
		return hostile("%s is not a URL", name)
	}
	server, err := url.Parse(s.URL)
	plain := err == nil && (isThisMachine(u.Hostname()) || server.Scheme == "http" && strings.EqualFold(u.Hostname(), server.Hostname()))
	switch {
	case u.Scheme == "http" && !plain:
		return hostile("%s is %s, where https is required", name, printable(u.Scheme+"://"+u.Host))
	case u.Scheme != "https" && u.Scheme != "http":
		return hostile("%s has the scheme %q", name, printable(u.Scheme))
	case u.Hostname() == "":
		return hostile("%s names no host", name)
	case u.User != nil:
		return hostile("%s contains a user name", name)
	case strings.Contains(address, "#"):
		return hostile("%s contains a fragment", name)
	case name == "issuer" && strings.Contains(address, "?"):
		return hostile("%s contains a query", name)
	}
	return nil
}

// carrier has the addresses of carrier-grade NAT, which netip does not know.
var carrier = netip.MustParsePrefix("100.64.0.0/10")

// nearness tells how local a host is by its name alone: 0 not at all, 1 an address
// of a private network, 2 this machine.
func nearness(host string) int {
	if isThisMachine(host) {
		return 2
	}
	ip, err := netip.ParseAddr(host)
	if ip = ip.Unmap(); err == nil && (ip.IsPrivate() || !ip.IsGlobalUnicast() || carrier.Contains(ip)) {
		return 1
	}
	return 0
}

func isThisMachine(host string) bool {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}
