// Package jsonrpc is a thin JSON-RPC 2.0 peer over a byte stream, as the Model
// Context Protocol uses it on standard input and output: one message per line.
//
// It is written for a gateway, which passes most of what it reads on to
// somebody else. Results are handed out as the bytes that arrived, so that the
// order of properties and integers beyond 2^53 survive, and a message is
// validated and cut into its members in a single pass.
//
// The peer is not trusted. A line has a bounded length and a bounded depth,
// whatever is not a message is put aside for diagnosis, answers to questions
// that nobody asked are counted and dropped, and a peer that stops reading
// delays nobody but those who call it.
package jsonrpc
