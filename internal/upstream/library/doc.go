// Package library holds a user's MCP servers: the definitions in all files, as
// package definitions reads them, and the user's decisions about them. It notices
// when a file changes, and remembers which projects are trusted, which servers
// are switched on and off, and which servers code requested.
//
// # Trust
//
// A definition in a project's folder came with the project, perhaps from a
// stranger. It is offered, but not started, until the user has trusted exactly
// that definition: in that folder (by its real path), in that file, under that
// name, and with that content. If any of it changes, the user must trust it
// again. If the definition names a program by a path inside the project, the
// program's content is not part of what is trusted.
//
// # Requests
//
// Code in a sandbox may request a server. If the gate allows it (see package
// authz), the server is added for the life of this process; it never replaces a
// configured one. Otherwise the request is stored, bounded in number and size,
// for a person to decide.
package library
