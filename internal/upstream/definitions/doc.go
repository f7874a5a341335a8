// Package definitions reads which MCP servers a user has: the files that name
// them and what each entry says.
//
// A file is a JSON object with a member "mcpServers":
//
//	{
//	  "description": "used by entries that have none",
//	  "mcpServers": {
//	    "files": {
//	      "command": "npx",
//	      "args": ["-y", "@modelcontextprotocol/server-filesystem", "~/notes"],
//	      "env": {"LOG": "${LOG_LEVEL:-info}"},
//	      "cwd": "~/notes",
//	      "description": "my notes"
//	    }
//	  }
//	}
//
// Remote servers have a url, a type and headers in place of a command. Files of
// other clients are read in their own forms; dialect.go says what is different
// about each, and sources.go where they lie. Whatever a key is called, it has one
// meaning in all of them.
//
// # Expansion
//
// In our own form, ${NAME} and ${NAME:-default} are replaced from the
// environment; the default also counts for an empty variable, as in a shell. A
// variable that is not set and has no default stays as it is written, with a
// warning. A leading ~ or ~/ is the home directory in command, args and cwd, not
// in env, whose values may be secrets that begin with one. ${file:PATH} and
// ${keyring:NAME} are left to Resolve, right before a start. In the file of
// another client its own variables are replaced, and nothing else. There is no
// shell. A relative cwd is relative to the file's directory, or the project's, and
// one that does not exist is left out with a warning.
//
// # Other clients' keys
//
// disabled and enabled are honoured, and so is everything that restricts the
// tools: restrictions add up, and nothing here ever widens them. Keys that only
// concern another client are ignored; a key that nobody knows is, in our own
// form, a warning that names the nearest one.
//
// # Projects
//
// What lies in a project's folder is Offered until somebody vouches for it, and
// takes no name from any other definition. Digest is of what is vouched for.
//
// # Secrets
//
// What a server is started with never shows in a Definition that is printed,
// logged or marshalled: the exported fields hold what is fit for people, with
// values of variables unexpanded and what looks like a secret masked. Only
// Launch and Remote hand out the real values, and Redact removes them from a text.
//
// Everything read here is bounded and untrusted in form: a broken file or entry
// is a Problem with its line and takes nothing else down.
package definitions
