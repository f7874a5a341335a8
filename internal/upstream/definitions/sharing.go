package definitions

import (
	"path/filepath"
	"slices"
	"strings"
)

// Sharing says for whom one server of a definition runs.
type Sharing string

// The ways to share, from the least to the most.
const (
	// ShareSession is a server for each session.
	ShareSession Sharing = "session"
	// ShareClient is a server for each client.
	ShareClient Sharing = "client"
	// ShareAll is one server for all clients that would start it in the same way.
	ShareAll Sharing = "all"
)

// SharingNames returns the ways to share.
func SharingNames() []string {
	return []string{string(ShareSession), string(ShareClient), string(ShareAll)}
}

// stateful are parts of the names of programs that remember what one client did,
// in a way that shows in the next call: an open page, a shell's directory, a chosen
// repository, cluster or database, a train of thought. Several clients in one
// process would disturb or read each other. Whether one of these is a server for
// each client too many costs a process; one too few costs a client's secrets.
var stateful = []string{
	// Browsers and screens.
	"playwright", "puppeteer", "browser", "chrome", "chromium", "firefox", "selenium", "webdriver", "stagehand", "devtools",
	"computer-use", "appium", "mobile-mcp", "mcp-mobile", "android", "ios-simulator", "xcodebuild", "applescript", "blender", "unity-mcp",
	// Shells, consoles and debuggers.
	"terminal", "desktop-commander", "shell", "iterm", "tmux", "mcp-ssh", "ssh-mcp", "ssh-server", "repl", "jupyter", "ipython", "notebook", "debugger", "lldb", "gdb", "code-sandbox", "code-runner",
	// A chosen project, repository, cluster or connection.
	"serena", "git-mcp-server", "server-kubernetes", "kubernetes-mcp", "mcp-k8s", "mongodb-mcp", "mcp-mongo",
	// Thoughts.
	"sequential-thinking", "sequentialthinking", "sequential_thinking", "code-reasoning",
}

// anywhere are packages and images that speak to a service or keep their data at
// a fixed place, and do not look at the directory in which they start. One process
// serves clients in all directories.
var anywhere = []string{
	"@modelcontextprotocol/server-memory", "@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-brave-search",
	"@modelcontextprotocol/server-github", "@modelcontextprotocol/server-gitlab", "@modelcontextprotocol/server-google-maps",
	"@modelcontextprotocol/server-slack", "@modelcontextprotocol/server-postgres", "@modelcontextprotocol/server-redis",
	"mcp-server-memory", "mcp-server-everything", "mcp-server-fetch", "mcp-server-time",
	"@upstash/context7-mcp", "@notionhq/notion-mcp-server", "@brave/brave-search-mcp-server", "@antv/mcp-server-chart",
	"@zereight/mcp-gitlab", "@stripe/mcp", "@sentry/mcp-server", "exa-mcp-server", "tavily-mcp", "firecrawl-mcp", "mcp-remote",
	"awslabs.aws-documentation-mcp-server", "mcp-atlassian", "mcp-obsidian", "@cloudflare/mcp-server-cloudflare",
	"ghcr.io/github/github-mcp-server", "github-mcp-server", "mcp/fetch", "mcp/time", "mcp/memory", "mcp/github", "mcp/slack", "mcp/notion", "mcp/brave-search",
}

// placeFlags are flags of launchers whose values may be relative paths.
var placeFlags = []string{"-c", "-v", "--volume", "--mount", "--env-file", "--prefix", "--directory", "--project"}

// Shares returns for whom a server of the definition runs: as the definition says,
// or else one for each client if it is known to remember what a client does.
func (d Definition) Shares() (how Sharing, why string) {
	if d.Sharing != "" {
		return d.Sharing, "its definition says so"
	}
	for _, name := range append(d.runs(), strings.ToLower(d.Name)) {
		for _, part := range stateful {
			if strings.Contains(name, part) {
				return ShareClient, "it remembers what a client does (" + part + ")"
			}
		}
	}
	for _, arg := range d.Launch().Args {
		if strings.Contains(arg, ":memory:") {
			return ShareClient, "it keeps data in memory"
		}
	}
	return ShareAll, ""
}

// Anywhere reports whether the user's server is known to ignore the directory in
// which it starts. It never does if an argument may be relative to that.
func (d Definition) Anywhere() bool {
	l := d.Launch()
	if l.Dir != "" || d.Source == NameProject || d.Source == NameRequested || strings.ContainsAny(l.Command, `/\`) && !filepath.IsAbs(l.Command) {
		return false
	}
	for _, arg := range l.Args {
		flag, value, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(arg, ".") || strings.HasPrefix(value, ".") || strings.Contains(arg, ":.") || slices.Contains(placeFlags, flag) {
			return false
		}
	}
	for _, name := range d.runs() {
		if slices.Contains(anywhere, name) {
			return true
		}
	}
	return false
}

// runs returns the names of what the definition starts, in lower case and without
// versions: its program or, if that is a launcher, what the launcher may
// run. A package has its whole name, a file its last part.
func (d Definition) runs() []string {
	l := d.Launch()
	command := program(l.Command)
	if !slices.Contains(launchers, command) {
		return []string{command}
	}
	var out []string
	first := true
	for _, arg := range l.Args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		for _, word := range words(arg) {
			path := filepath.IsAbs(word) || strings.HasPrefix(word, ".") || strings.HasPrefix(word, "~")
			switch {
			case path && first: // a script
				out = append(out, program(word))
			case !path:
				out = append(out, unversioned(word))
			}
		}
		first = false
	}
	return out
}

// unversioned returns the name of a package or image without its version, tag and
// extras.
func unversioned(name string) string {
	name = strings.ToLower(name)
	if i := strings.LastIndexAny(name, "@:"); i > 0 && i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	if i := strings.IndexAny(name, "=[<>~"); i > 0 {
		name = name[:i]
	}
	return name
}
