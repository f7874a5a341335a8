package oauth

import "net/http"

// Server is an MCP server as its definition describes it.
type Server struct {
	// Name is how the user knows it, for messages and as part of the login's key: one
	// server can have two definitions, for two accounts.
	Name string
	// URL is where it is reached: the resource.
	URL string
	// Client is what the definition says about signing in.
	Client Client
	// HTTP makes the connections to the authorization server. It enforces the rules
	// for addresses and redirects.
	HTTP *http.Client
	// Keyring keeps the key that seals the logins. Nil means that the key is in a
	// file next to them.
	Keyring Keyring
}

// Client is what a definition says about signing in. The zero value is right for
// most servers: the server says where, and we register ourselves there.
type Client struct {
	// ID and Secret are those of a client that the user registered by hand; a public
	// client has no secret.
	ID, Secret string
	// Issuer is the authorization server that ID belongs to. Empty means the one that
	// the server names when ID is used first.
	Issuer string
	// Scopes are requested instead of those that the server asks for.
	Scopes []string
	// RedirectURL is where a browser returns to: http://HOST:PORT/PATH with a loopback
	// host. Empty means a free port.
	RedirectURL string
	// Grant says how a token is obtained.
	Grant Grant
	// Key is a private key in PEM form, and Algorithm how it signs; with them the
	// client authenticates itself in place of a secret (RFC 7523).
	Key, Algorithm string
	// Assertion is a token from the environment that says who this workload is, for
	// the grant Workload.
	Assertion string
	// IdP is the organization's identity provider, for the grant Enterprise.
	IdP IdP
}

// IdP is an identity provider with OpenID Connect.
type IdP struct {
	Issuer, ClientID, ClientSecret string
	// HTTP makes the connections to it: an organization's can be where its MCP servers
	// may not send us. Nil means that Server.HTTP does.
	HTTP *http.Client
}

// Grant is how a token is obtained.
type Grant string

// The grants.
const (
	Person      Grant = ""                   // a person signs in with a browser
	Credentials Grant = "client_credentials" // the client itself, with Secret or Key
	Workload    Grant = "workload"           // with Assertion (RFC 7523, section 2.1)
	Enterprise  Grant = "enterprise"         // a person signs in at IdP once, for all servers
)
