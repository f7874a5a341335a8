// Package jsonrpc is a thin JSON-RPC 2.0 peer over a byte stream, as the Model
// Context Protocol uses it on standard input and output: one message per line.
//
// It is written for a gateway, which passes on most of what it reads. Results are
// returned as the bytes that arrived, so that the order of properties and integers
// beyond 2^53 survive, and a message is validated and split into its members in a
// single pass.
//
// The peer is not trusted. Lines are bounded in length and depth. Lines that are
// not messages are kept for diagnosis, answers that match no request are counted
// and dropped, and a peer that stops reading delays only its own callers. Its own
// requests may take long, but only a few are in progress at once.
package jsonrpc
