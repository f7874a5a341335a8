// Package settings is the program's one configuration: every setting is
// declared once, with its type, default, range, names and meaning, and from
// that declaration come loading, validation, the generated documentation and
// the listing of what is in force and where it came from.
//
// Later layers win: defaults, the user's config.yaml, the MCP_BRIDGE_…
// variables of the first code-execution bridge, our own SALLYPORT_…
// variables, flags. Nothing is ignored: an unknown name, a value of the wrong
// type or out of range, and a file that cannot be read are errors that say
// where they are and what to write instead. A file in the working directory
// is never read: whoever wrote a project must not decide how its code is
// confined.
package settings
