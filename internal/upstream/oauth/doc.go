// Package oauth signs the user in at MCP servers that are reached over HTTP, as
// the protocol's revisions since 2025-03-26 say: OAuth 2.1 with metadata of the
// resource (RFC 9728) and of its authorization server (RFC 8414), PKCE, resource
// indicators (RFC 8707) and issuer identification (RFC 9207).
//
// A Server says what a definition knows. Logins has what is stored: the user's
// tokens, sealed, shared by all processes of the user. A Login is one of them; it
// authorizes requests, and renews its token when that has expired. SignIn obtains
// one, with a person who visits an address in a browser; Grant obtains one
// without.
//
// # Trust
//
// Servers and what they name are hostile. Documents are bounded in size and time;
// every connection, also after a redirect, goes through the HTTP client that the
// caller gives, which refuses addresses that the server has no reason to name. A
// token goes to the origin of the server that it is for, and nowhere else. What
// belongs to one authorization server, such as a client's registration, is never
// sent to another. Errors contain no token, no code and no secret.
package oauth
