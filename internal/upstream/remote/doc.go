// Package remote speaks the Model Context Protocol to servers over HTTP: the
// streamable transport of 2025-03-26 and later, with and without sessions, and
// the older one of 2024-11-05, in which one stream of server-sent events
// carries all answers.
//
// Results are handed out as the bytes that arrived, as package jsonrpc does it.
//
// # Where connections go
//
// Every connection passes a Network, which holds what the user's servers may
// not be used for:
//
//   - An address guard looks at the address that a name has led to, right
//     before the connection is made, so that a name that resolves differently
//     the second time gains nothing. It refuses link-local addresses, with the
//     metadata services of clouds, multicast, unspecified and reserved ones,
//     also where one of them hides in an IPv6 address. Loopback and private
//     networks are allowed: that is where users have servers.
//   - Plain HTTP goes to loopback, and to hosts that the configuration names.
//   - A redirect is followed only within its origin: headers with credentials
//     go nowhere else.
//   - Through a proxy of the environment, the address is the proxy's to find:
//     the guard then sees only what the URL says.
//
// # Trust
//
// A server is not trusted. What it sends is bounded: headers, bodies (after
// decompression), events, the identifiers that we send back. A server that
// stalls, drops its stream or answers what nobody asked harms the calls made
// to it. Errors hold no URL and no header.
package remote
