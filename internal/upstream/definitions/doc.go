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
// # Expansion
//
// ${NAME} and ${NAME:-default} are replaced in command, args, env and cwd from
// the environment; the default also counts for an empty variable, as in a
// shell. A variable that is not set and has no default stays as it is written,
// with a warning. A leading ~ or ~/ is the home directory in command, args and
// cwd, not in env, whose values may be secrets that begin with one. Nothing
// else is expanded; there is no shell. A relative cwd is relative to the file's
// directory, and one that does not exist is left out with a warning.
//
// # Other clients' keys
//
// disabled and enabled are honoured, and so are lists that restrict the tools;
// keys that only concern another client (timeouts, approvals) are ignored; a
// key that nobody knows is a warning that names the nearest one. An entry for a
// remote server (url) is a problem: it is not supported yet.
//
// # Secrets
//
// What a server is started with never shows in a Definition that is printed,
// logged or marshalled: the exported fields hold what is fit for people, with
// values of variables unexpanded and what looks like a secret masked. Only
// Launch hands out the real values, and Redact removes them from a text.
//
// Everything read here is bounded and untrusted in form: a broken file or entry
// is a Problem with its line and takes nothing else down.
package definitions
