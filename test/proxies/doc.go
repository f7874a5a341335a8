// Package proxies calls each of 458 tools of real MCP servers from a sandbox,
// and compares what reaches the server with what was called, byte for byte.
//
// testdata/tools has the tools; testdata/calls.json a call of each, made from
// its schema (go test -update writes it). The Python tests of the guest read
// both too.
package proxies
