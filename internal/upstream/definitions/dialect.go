package definitions

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/edit"
)

// A dialect is how one client writes definitions. A key of an entry means the
// same in all clients, except for what is listed here.
type dialect struct {
	format edit.Format
	// paths lead to the object of servers. All that exist are read. A new server is
	// written at the path write, or at newer if the file has servers there; with one
	// path both are nil.
	paths        [][]string
	write, newer []string
	vars         syntax
	// plainURL is the transport of a URL without a type.
	plainURL Transport
	// timeout is the unit of the key "timeout", or 0 if it is ignored. startTimeout
	// means that it bounds the start, not a call.
	timeout      time.Duration
	startTimeout bool
	// emptyAllows means that an empty list of tools allows all, as in the client.
	emptyAllows bool
	// named means that the servers are a list, in which each has a name.
	named bool
	// skip reports entries that are not MCP servers of their own.
	skip func(*node) bool
	// after applies what the rest of the file says about servers.
	after func(l *loader, root *node, defs []*Definition)
	// prune reports which members of a large file need to be read.
	prune func(path []string) bool
}

// own is the format of ~/MCPs.
var own = &dialect{
	format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: Auto,
	vars: syntax{braces: true, tilde: true, references: true},
}

var (
	claudeDesktop = &dialect{paths: [][]string{{"mcpServers"}}, plainURL: Auto}

	claudeCode = &dialect{
		paths: [][]string{{"mcpServers"}}, plainURL: Auto,
		vars:  syntax{braces: true},
		after: afterClaudeCode,
		prune: func(path []string) bool {
			switch len(path) {
			case 1:
				return slices.Contains([]string{"mcpServers", "projects", "permissions"}, path[0])
			case 3:
				return path[0] != "projects" || strings.Contains(strings.ToLower(path[2]), "mcp")
			}
			return true
		},
	}

	cursor = &dialect{
		format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: Auto,
		vars: syntax{editor: true},
	}

	vscode = &dialect{
		format: edit.JSONC, paths: [][]string{{"servers"}}, plainURL: Auto,
		vars: syntax{editor: true, inputs: true},
	}

	vscodeSettings = &dialect{
		// The last one is not VS Code's own, but people use it anyway.
		format: edit.JSONC, paths: [][]string{{"mcp", "servers"}, {"mcpServers"}}, plainURL: Auto,
		vars:  syntax{editor: true, inputs: true},
		prune: func(path []string) bool { return path[0] == "mcp" || path[0] == "mcpServers" },
	}

	windsurf = &dialect{
		format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: Auto,
		vars: syntax{editor: true},
	}

	zed = &dialect{
		format: edit.JSONC, paths: [][]string{{"context_servers"}}, plainURL: Auto,
		skip: func(n *node) bool {
			// The command of an extension's server is inside the extension.
			_, command := n.get("command")
			_, url := n.get("url")
			return n.kind == '{' && !command && !url
		},
		after: afterZed,
		prune: func(path []string) bool {
			return path[0] == "context_servers" || path[0] == "agent" && (len(path) < 2 || path[1] == "profiles" || path[1] == "default_profile")
		},
	}

	cline = &dialect{
		format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: SSE, timeout: time.Second,
		vars: syntax{editor: true},
	}

	codex = &dialect{format: edit.TOML, paths: [][]string{{"mcp_servers"}}, plainURL: HTTP}

	gemini = &dialect{
		format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: SSE, timeout: time.Millisecond,
		vars:  syntax{braces: true, dollar: true},
		after: afterGemini,
	}

	opencode = &dialect{
		format: edit.JSONC, paths: [][]string{{"mcp", "servers"}, {"mcp"}, {"mcpServers"}}, plainURL: Auto,
		// Version 2 reads the form of version 1, but not the other way round.
		write: []string{"mcp"}, newer: []string{"mcp", "servers"},
		timeout: time.Millisecond, startTimeout: true,
		vars: syntax{opencode: true},
		// The second version keeps its servers in "servers"; it is not a server of the
		// first.
		skip:  func(n *node) bool { return n.kind == '{' && !looksLikeEntry(n) },
		after: afterOpenCode,
	}

	goose = &dialect{
		format: edit.YAML, paths: [][]string{{"extensions"}}, plainURL: HTTP, timeout: time.Second, emptyAllows: true,
		skip: func(n *node) bool {
			kind, ok := n.get("type")
			return ok && !slices.Contains([]string{"stdio", "sse", "streamable_http"}, kind.text)
		},
		prune: func(path []string) bool { return path[0] == "extensions" },
	}

	copilot = &dialect{
		format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: Auto, timeout: time.Millisecond,
		vars: syntax{braces: true, dollar: true},
	}

	kiro = &dialect{
		format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: Auto,
		vars: syntax{braces: true},
	}

	crush = &dialect{
		format: edit.JSON, paths: [][]string{{"mcp"}}, plainURL: Auto, timeout: time.Second,
		vars:  syntax{braces: true, dollar: true},
		prune: func(path []string) bool { return path[0] == "mcp" },
	}

	lmStudio = &dialect{format: edit.JSONC, paths: [][]string{{"mcpServers"}}, plainURL: Auto}

	continueDev = &dialect{format: edit.YAML, paths: [][]string{{"mcpServers"}}, plainURL: Auto, named: true}
)

// dialectOf guesses the dialect of a file by its name.
func dialectOf(path string) *dialect {
	switch base := strings.ToLower(filepath.Base(path)); {
	case base == ".claude.json" || base == ".mcp.json":
		return claudeCode
	case strings.HasPrefix(base, "opencode.json"), base == ".opencode.json":
		return opencode
	case strings.HasSuffix(base, ".toml"):
		return codex
	case strings.HasSuffix(base, ".yaml"), strings.HasSuffix(base, ".yml"):
		return goose
	}
	return nil
}

// entryKeys tell an entry from an object of entries.
var entryKeys = []string{"type", "command", "url", "enabled", "disabled"}

// looksLikeEntry is isEntry for a file that is read.
func looksLikeEntry(n *node) bool {
	for _, key := range entryKeys {
		if v, ok := n.get(key); ok && v.kind != '{' {
			return true
		}
	}
	return false
}

// strings returns the strings of a list, and ignores its other elements.
func (n *node) strings() []string {
	var out []string
	if n.kind == '[' {
		for i := range n.items {
			if n.items[i].kind == '"' {
				out = append(out, n.items[i].text)
			}
		}
	}
	return out
}

// byName turns a list of objects that have names into an object of them.
func (n *node) byName() *node {
	out := &node{line: n.line, kind: '{'}
	for i := range n.items {
		item := n.items[i]
		if name := item.at("name"); name.kind == '"' {
			out.members = append(out.members, member{key: name.text, line: item.line, value: item})
		}
	}
	return out
}

// at follows a path of keys.
func (n *node) at(path ...string) *node {
	for _, key := range path {
		next, ok := n.get(key)
		if !ok {
			return &node{kind: 'n', line: n.line}
		}
		n = next
	}
	return n
}

// afterClaudeCode honours what the user switched off for this project.
func afterClaudeCode(l *loader, root *node, defs []*Definition) {
	for _, dir := range l.folders() {
		for _, name := range root.at("projects", dir, "disabledMcpServers").strings() {
			for _, d := range defs {
				d.Disabled = d.Disabled || d.Name == name
			}
		}
		l.notOfProject = append(l.notOfProject, root.at("projects", dir, "disabledMcpjsonServers").strings()...)
	}
}

// folders returns the names by which clients may know the working directory.
func (l *loader) folders() []string {
	dir := l.opts.Dir
	if dir == "" {
		return nil
	}
	names := []string{dir, filepath.ToSlash(dir)}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		names = append(names, real, filepath.ToSlash(real))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// afterGemini honours the lists of servers next to mcpServers.
func afterGemini(_ *loader, root *node, defs []*Definition) {
	off := slices.Concat(root.at("mcp", "excluded").strings(), root.at("excludeMCPServers").strings())
	for _, only := range []*node{root.at("mcp", "allowed"), root.at("allowMCPServers")} {
		for _, d := range defs {
			d.Disabled = d.Disabled || only.kind == '[' && !slices.Contains(only.strings(), d.Name)
		}
	}
	for _, d := range defs {
		d.Disabled = d.Disabled || slices.Contains(off, d.Name)
	}
}

// afterOpenCode honours "tools": {"server_tool": false, "server_*": false}.
func afterOpenCode(_ *loader, root *node, defs []*Definition) {
	tools := root.at("tools")
	for i := range tools.members {
		m := &tools.members[i]
		if m.value.kind != 'f' {
			continue
		}
		for _, d := range defs {
			prefix := d.Name + "_"
			if tool, ok := strings.CutPrefix(m.key, prefix); ok && tool != "" {
				d.DenyTools = append(d.DenyTools, tool)
			} else if start, ok := strings.CutSuffix(m.key, "*"); ok && strings.HasPrefix(prefix, start) {
				d.DenyTools = append(d.DenyTools, "*")
			}
		}
	}
}

// afterZed honours the tools that are off in the default profile of Zed's
// agent.
func afterZed(_ *loader, root *node, defs []*Definition) {
	profile := root.at("agent", "default_profile").text
	if profile == "" {
		profile = "write"
	}
	for _, d := range defs {
		tools := root.at("agent", "profiles", profile, "context_servers", d.Name, "tools")
		for i := range tools.members {
			if tools.members[i].value.kind == 'f' {
				d.DenyTools = append(d.DenyTools, tools.members[i].key)
			}
		}
	}
}

// claudeSettings returns Claude Code's files that can forbid tools.
func (p Places) claudeSettings() []string {
	var out []string
	dir := p.variable("CLAUDE_CONFIG_DIR", p.under(p.Home, ".claude"))
	for _, base := range []string{dir, p.under(p.Dir, ".claude")} {
		for _, name := range []string{"settings.json", "settings.local.json"} {
			if base != "" {
				out = append(out, filepath.Join(base, name))
			}
		}
	}
	return out
}

// claudeDenies reads permissions.deny: "mcp__server__tool", "mcp__server".
func claudeDenies(root *node) map[string][]string { return claudePermissions(root, "deny") }

// claudePermissions reads one of the lists of permissions.
func claudePermissions(root *node, list string) map[string][]string {
	out := map[string][]string{}
	for _, rule := range root.at("permissions", list).strings() {
		rest, ok := strings.CutPrefix(rule, "mcp__")
		if !ok {
			continue
		}
		server, tool, ok := strings.Cut(rest, "__")
		if !ok || tool == "" {
			tool = "*"
		}
		out[server] = append(out[server], tool)
	}
	return out
}

// ClaudeAllows returns the tools that the user's settings of Claude Code allow
// without asking, by server as ClaudeName spells it. A project's settings do not
// count: anyone may have written them.
func (p Places) ClaudeAllows() map[string][]string {
	p.Dir = ""
	out := map[string][]string{}
	for _, path := range p.claudeSettings() {
		root, _, err := readTree(path, claudeRulesFile, nil)
		if err != nil {
			continue
		}
		for server, tools := range claudePermissions(root, "allow") {
			out[server] = append(out[server], tools...)
		}
	}
	return out
}

// ClaudeName returns a server's name as Claude Code's rules spell it.
func ClaudeName(name string) string { return claudeName(name) }
