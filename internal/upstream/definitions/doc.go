// Package definitions reads the definitions of a user's MCP servers: it finds the
// files that name them, and parses their entries.
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
// other clients are read in their own formats; dialect.go has the differences, and
// sources.go the locations. A key means the same in all of them.
//
// # Expansion
//
// In our own format, ${NAME} and ${NAME:-default} are replaced from the
// environment; the default also counts for an empty variable, as in a shell. A
// variable that is not set and has no default stays as it is written, with a
// warning. A leading ~ or ~/ is the home directory in command, args and cwd, not
// in env, whose values may be secrets that begin with one. ${file:PATH} and
// ${keyring:NAME} are left to Resolve, right before a start. In the file of
// another client only that client's notations are expanded. No shell is involved.
// A relative cwd is relative to the file's directory, or the project's. One that
// does not exist is left out with a warning.
//
// # Other clients' keys
//
// disabled and enabled are honoured, and so is everything that restricts the
// tools: restrictions add up, and nothing here ever widens them. Keys that only
// concern another client are ignored. In our own format an unknown key is a
// warning that names the nearest known one.
//
// # Sharing
//
// sharing says for whom one server runs: "session", "client" or "all". Without it,
// Shares knows the servers that remember what a client does.
//
// # Projects
//
// A definition in a project's folder is Offered until the user trusts it, and takes
// no name from any other definition. Digest covers what the user trusts.
//
// # Secrets
//
// What a server is started with never shows in a Definition that is printed,
// logged or marshalled: the exported fields hold what is fit for people, with
// values of variables unexpanded and what looks like a secret masked. Only
// Launch and Remote return the real values, and Redact removes them from a string.
//
// Everything read here is bounded and untrusted in form: a broken file or entry
// is a Problem with its line, and does not affect others.
package definitions
