package definitions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of one entry.
const (
	maxArgs   = 4096
	maxString = 1 << 20
	maxName   = 128
)

// entryParser reads one member of mcpServers.
type entryParser struct {
	file     string
	name     string
	line     int
	expand   *expander
	problems []Problem
	failed   bool
}

func (p *entryParser) warn(line int, format string, args ...any) {
	p.problems = append(p.problems, Problem{File: p.file, Line: line, Server: clip(p.name), Warning: true, Reason: fmt.Sprintf(format, args...)})
}

func (p *entryParser) fail(line int, format string, args ...any) {
	p.failed = true
	p.problems = append(p.problems, Problem{File: p.file, Line: line, Server: clip(p.name), Reason: fmt.Sprintf(format, args...)})
}

// Keys of other clients that concern only how that client behaves.
var ignoredKeys = []string{
	"timeout", "timeouts", "trust", "alwaysAllow", "autoApprove", "autoStart", "autostart", "required",
	"startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "initTimeout", "requestTimeout",
	"icon", "icons", "title", "tags", "version", "homepage", "gallery", "dev", "sandboxEnabled", "note", "comment", "_comment", "//", "$schema",
}

var knownKeys = []string{
	"command", "args", "env", "cwd", "description", "disabled", "enabled", "type", "transport", "url",
	"includeTools", "excludeTools", "enabledTools", "disabledTools", "enabled_tools", "disabled_tools", "allowedTools", "tools",
}

// remoteKeys say that an entry is no program on this machine.
var remoteKeys = []string{"url", "serverUrl", "httpUrl", "uri", "headers", "http_headers", "env_http_headers", "bearer_token_env_var", "oauth"}

func (p *entryParser) parse(n *node, fallbackDescription string) (Definition, bool) {
	d := Definition{Name: p.name, Description: fallbackDescription, File: p.file, Line: p.line}
	if n.kind != '{' {
		p.fail(n.line, "must be an object with a command, not %s", n.what())
		return d, false
	}
	if remote := p.remote(n); remote != nil {
		p.fail(remote.line, "remote servers are not supported yet")
		return d, false
	}
	var real, written Launch
	for i := range n.members {
		key, line, v := n.members[i].key, n.members[i].line, &n.members[i].value
		switch key {
		case "command":
			written.Command = p.string(key, v)
			real.Command = p.expand.path(written.Command)
		case "args":
			written.Args = p.strings(key, v)
			for _, arg := range written.Args {
				real.Args = append(real.Args, p.expand.path(arg))
			}
		case "env":
			real.Env = p.environment(v)
		case "cwd":
			if v.kind != 'n' {
				real.Dir = p.workDir(v)
			}
		case "description":
			if text := p.string(key, v); text != "" {
				d.Description = text
			}
		case "disabled":
			d.Disabled = d.Disabled || p.bool(key, v)
		case "enabled":
			d.Disabled = d.Disabled || !p.bool(key, v)
		case "type", "transport":
			if kind := p.string(key, v); kind != "stdio" && kind != "local" && !p.failed {
				p.fail(v.line, "unknown %s %q: only stdio is supported", key, clip(kind))
			}
		case "includeTools", "enabledTools", "enabled_tools", "allowedTools", "tools":
			p.allow(&d, key, v)
		case "excludeTools", "disabledTools", "disabled_tools":
			d.DenyTools = append(d.DenyTools, p.strings(key, v)...)
		default:
			if !slices.Contains(ignoredKeys, key) && !slices.Contains(remoteKeys, key) {
				p.warn(line, "unknown key %q is ignored%s", clip(key), didYouMean(key, knownKeys))
			}
		}
	}
	if strings.TrimSpace(real.Command) == "" && !p.failed {
		p.fail(p.line, "has no command")
	}
	for _, name := range slices.Sorted(maps.Keys(p.expand.miss)) {
		p.warn(p.line, "the variable %s is not set", name)
	}
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return a.Line - b.Line })
	if p.failed {
		return d, false
	}
	written.Dir = real.Dir
	d.setLaunch(real, written, p.expand.used)
	return d, true
}

// remote returns the member that says that the server is a remote one.
func (p *entryParser) remote(n *node) *node {
	if kind, ok := n.get("type"); ok && kind.kind == '"' {
		switch strings.ToLower(kind.text) {
		case "http", "sse", "streamable-http", "streamablehttp", "streamable_http", "ws", "websocket", "remote":
			return kind
		}
	}
	if _, ok := n.get("command"); ok {
		return nil
	}
	for _, key := range remoteKeys {
		if v, ok := n.get(key); ok {
			return v
		}
	}
	return nil
}

func (p *entryParser) string(key string, v *node) string {
	switch {
	case v.kind != '"':
		p.fail(v.line, "%s must be a string, not %s", key, v.what())
	case len(v.text) > maxString:
		p.fail(v.line, "%s is longer than %d bytes", key, maxString)
	case strings.ContainsRune(v.text, 0):
		p.fail(v.line, "%s contains a NUL character", key)
	default:
		return v.text
	}
	return ""
}

// scalar also takes numbers and truth values as they are written: people write
// "PORT": 3000.
func (p *entryParser) scalar(key string, v *node) string {
	if v.kind == '0' || v.kind == 't' || v.kind == 'f' {
		return v.text
	}
	return p.string(key, v)
}

func (p *entryParser) bool(key string, v *node) bool {
	if v.kind != 't' && v.kind != 'f' {
		p.fail(v.line, "%s must be true or false, not %s", key, v.what())
	}
	return v.kind == 't'
}

func (p *entryParser) strings(key string, v *node) []string {
	switch {
	case v.kind == 'n':
		return nil
	case v.kind != '[':
		p.fail(v.line, "%s must be a list of strings, not %s", key, v.what())
		return nil
	case len(v.items) > maxArgs:
		p.fail(v.line, "%s has more than %d elements", key, maxArgs)
		return nil
	}
	out := make([]string, 0, len(v.items))
	for i := range v.items {
		out = append(out, p.scalar(fmt.Sprintf("%s[%d]", key, i), &v.items[i]))
	}
	return out
}

// allow narrows the tools; several lists allow what all of them allow.
func (p *entryParser) allow(d *Definition, key string, v *node) {
	list := p.strings(key, v)
	switch {
	case v.kind == 'n' || slices.Contains(list, "*"):
	case d.AllowTools == nil:
		d.AllowTools = append([]string{}, list...)
	default:
		d.AllowTools = slices.DeleteFunc(d.AllowTools, func(name string) bool { return !slices.Contains(list, name) })
	}
}

func (p *entryParser) environment(v *node) map[string]string {
	switch {
	case v.kind == 'n':
		return nil
	case v.kind != '{':
		p.fail(v.line, "env must be an object, not %s", v.what())
		return nil
	case len(v.members) > maxArgs:
		p.fail(v.line, "env has more than %d members", maxArgs)
		return nil
	}
	env := make(map[string]string, len(v.members))
	for i := range v.members {
		m := &v.members[i]
		if m.key == "" || strings.ContainsAny(m.key, "=\x00") {
			p.fail(m.line, "env: %q cannot be the name of a variable", clip(m.key))
			continue
		}
		env[m.key] = p.expand.variables(p.scalar("env."+clip(m.key), &m.value))
	}
	return env
}

func (p *entryParser) workDir(v *node) string {
	text := p.string("cwd", v)
	if text == "" {
		return ""
	}
	dir, exists := workDir(p.expand.path(text), p.file)
	if !exists {
		p.warn(v.line, "the working directory %s does not exist; the server is started without it", clip(text))
		return ""
	}
	return dir
}

// didYouMean names the known key nearest to an unknown one.
func didYouMean(key string, known []string) string {
	best, distance := "", 3
	for _, k := range known {
		if d := editDistance(strings.ToLower(key), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// editDistance counts insertions, deletions, replacements; it stops caring
// beyond short words.
func editDistance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 40
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
