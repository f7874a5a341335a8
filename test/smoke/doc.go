// Package smoke checks the built executable from the outside, in about a minute:
// what a person types, what an MCP client sends, and a few attacks. Each check
// is the essence of one that another suite makes in full, and none of them is
// decided by speed.
//
//	SALLYPORT_BIN=$PWD/bin/sallyport go test ./test/smoke
//
// The checks need Linux and Python, and start real sandboxes with gVisor. They
// need neither root nor Go, npm or a network. The MCP servers behind Sallyport
// are part of the test binary, made with the official SDK, and so is the client.
package smoke
