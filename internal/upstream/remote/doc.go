// Package remote speaks the Model Context Protocol to servers over HTTP: the
// streamable transport of 2025-03-26 and later, with and without sessions, and
// the older one of 2024-11-05, in which one stream of server-sent events
// carries all answers.
//
// Results are handed out as the bytes that arrived, as in package jsonrpc.
//
// # Where connections go
//
// Every connection goes through a Network, which enforces these rules:
//
//   - An address guard checks the address that a name resolved to, right before
//     the connection is made, so that a name that resolves differently the
//     second time gains nothing. It refuses link-local addresses, which include
//     the metadata services of clouds, and multicast, unspecified and reserved
//     ones, even if an IPv6 address embeds them. Loopback and private networks
//     are allowed: that is where users have servers.
//   - Plain HTTP goes to loopback, and to hosts that the configuration names.
//   - A redirect is followed only within its origin: headers with credentials
//     go nowhere else.
//   - What a server names for signing in is reached with the client of SignIn, whose
//     rules are stricter: a server must not name what only the user can reach.
//   - A proxy of the environment resolves names itself: the guard then checks
//     only what the URL says.
//
// # Trust
//
// A server is not trusted. What it sends is bounded: headers, bodies (after
// decompression), events, the identifiers that we send back. A server that
// stalls, drops its stream or sends unexpected answers harms only the calls
// made to it. Errors contain no URL and no header.
package remote
