// Package library is what a user's MCP servers are at any moment: the
// definitions that all files say, as package definitions reads them, with what
// the user decided beside them. It notices when a file changes; it remembers
// which projects are trusted, which servers are switched on and off, and what
// code asked for.
//
// # Trust
//
// A definition that lies in a project's folder came with the project, perhaps
// from a stranger. It is offered, and starts nothing, until the user has
// trusted that definition: in that folder (by its real path), in that file,
// under that name, and in those words. When a word changes it waits again.
// Programs that such a definition names by a path inside of the project are not
// part of what is trusted.
//
// # Requests
//
// Code in a sandbox may ask for a server. It gets it at once only where a
// pattern of the operator's allows exactly that command line or URL, without
// variables of any kind; for the life of this process, and never in the place
// of a server that there is. Otherwise the wish is written down, bounded in
// number and size, and a person decides.
package library
