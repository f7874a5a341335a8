package definitions

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of one entry.
const (
	maxArgs   = 4096
	maxString = 1 << 20
	maxName   = 128

	maxEnvFile = 1 << 20
	maxTimeout = 24 * time.Hour
)

// entryParser parses one member of mcpServers.
type entryParser struct {
	source   Source
	dialect  *dialect
	name     string
	line     int
	expand   *expander
	room     *int64 // as of loader.room
	strict   bool   // unknown keys are reported
	problems []Problem
	failed   bool

	real, written Launch
	remote        Remote
	url           string // as it was written
	kind          Transport
	def           Definition
	fileEnv       map[string]string // the contents of envFile
	read          []string          // files that were read for the entry
	envFilePath   string            // for Translate
	// blind means that whoever wrote the entry must learn nothing about this
	// machine.
	blind bool
}

func (p *entryParser) warn(line int, format string, args ...any) {
	p.problems = append(p.problems, Problem{File: p.source.File, Line: line, Server: clip(p.name), Warning: true, Reason: fmt.Sprintf(format, args...)})
}

func (p *entryParser) fail(line int, format string, args ...any) {
	p.failed = true
	p.problems = append(p.problems, Problem{File: p.source.File, Line: line, Server: clip(p.name), Reason: fmt.Sprintf(format, args...)})
}

// Keys of other clients that only affect the client itself.
var ignoredKeys = []string{
	"timeouts", "trust", "alwaysAllow", "autoApprove", "autoStart", "autostart", "required", "source", "settings", "name", "display_name", "bundled",
	"initTimeout", "requestTimeout", "authProviderType", "scopes", "default_tools_approval_mode", "supports_parallel_tool_calls",
	"icon", "icons", "title", "tags", "version", "homepage", "gallery", "dev", "sandboxEnabled", "note", "comment", "_comment", "//", "$schema",
}

var knownKeys = []string{
	"command", "args", "env", "cwd", "description", "disabled", "enabled", "type", "transport", "url", "headers", "envFile", "tls", "oauth",
	"startTimeout", "callTimeout", "bearerTokenEnvVar", "sharing",
	"includeTools", "excludeTools", "enabledTools", "disabledTools", "enabled_tools", "disabled_tools", "allowedTools", "tools",
}

// otherKeys are keys of clients that mean the same as known ones.
var otherKeys = []string{
	"cmd", "environment", "envs", "env_vars", "env_keys", "serverUrl", "httpUrl", "uri", "http_headers", "env_http_headers", "bearer_token_env_var",
	"requestOptions", "auth", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec", "available_tools",
}

// transports maps the words for transports, without case, dashes and
// underscores.
var transports = map[string]Transport{
	"": "", "stdio": Stdio, "local": Stdio, "http": HTTP, "streamablehttp": HTTP, "sse": SSE, "remote": Auto,
}

func (p *entryParser) parse(n *node, fallbackDescription string) (Definition, bool) {
	p.def = Definition{Name: p.name, Description: fallbackDescription, Source: p.source.Name, File: p.source.File, Line: p.line}
	if n.kind != '{' {
		p.fail(n.line, "must be an object with a command or a url, not %s", n.what())
		return p.def, false
	}
	for i := range n.members {
		p.expand.line = n.members[i].line
		p.member(n.members[i].key, n.members[i].line, &n.members[i].value)
	}
	p.finish(n)
	slices.SortStableFunc(p.problems, func(a, b Problem) int { return a.Line - b.Line })
	return p.def, !p.failed
}

// member reads one key of an entry. One that is null is as good as absent.
func (p *entryParser) member(key string, line int, v *node) {
	d := &p.def
	if v.kind == 'n' && (!p.strict || slices.Contains(knownKeys, key) || slices.Contains(otherKeys, key)) {
		return
	}
	switch key {
	case "command", "cmd":
		p.command(key, v)
	case "args":
		p.setArgs(p.strings(key, v))
	case "env", "environment", "envs":
		p.merge(&p.real.Env, p.environment(key, v))
	case "env_vars", "env_keys":
		p.passOn(key, v)
	case "envFile":
		p.envFile(key, v)
	case "cwd":
		if v.kind != 'n' {
			p.real.Dir = p.workDir(v)
		}
	case "url", "serverUrl", "httpUrl", "uri":
		p.setURL(key, v)
	case "headers", "http_headers":
		p.merge(&p.remote.Headers, p.headers(key, v))
	case "env_http_headers", "bearer_token_env_var", "bearerTokenEnvVar":
		p.headersFromEnvironment(key, v)
	case "requestOptions": // Continue's
		if headers, ok := v.get("headers"); ok {
			p.merge(&p.remote.Headers, p.headers("requestOptions.headers", headers))
		}
	case "tls":
		p.tls(v)
	case "oauth":
		p.oauth(key, v)
	case "auth": // Cursor's
		if v.kind == '{' {
			p.oauth(key, v)
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
		p.transport(key, v)
	case "timeout", "startTimeout", "callTimeout", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec":
		p.timeout(key, v)
	case "sharing":
		p.sharing(key, v)
	case "includeTools", "enabledTools", "enabled_tools", "allowedTools", "tools", "available_tools":
		p.allow(key, v)
	case "excludeTools", "disabledTools", "disabled_tools":
		d.DenyTools = append(d.DenyTools, p.strings(key, v)...)
	default:
		if p.strict && !slices.Contains(ignoredKeys, key) {
			p.warn(line, "unknown key %q is ignored%s", clip(key), didYouMean(key, knownKeys))
		}
	}
}

// finish combines what the members said.
func (p *entryParser) finish(n *node) {
	command := strings.TrimSpace(p.real.Command) != ""
	switch {
	case p.failed:
	case command && p.url != "" && p.kind == "":
		p.fail(p.line, "has both a command and a url: choose one with type")
	case !command && p.url == "":
		if _, ok := n.get("command"); ok || p.kind != HTTP && p.kind != SSE && p.kind != Auto {
			p.fail(p.line, "has no command and no url")
		} else {
			p.fail(p.line, "has no url")
		}
	case p.kind == Stdio && !command:
		p.fail(p.line, "has no command")
	case p.kind != "" && p.kind != Stdio && p.url == "":
		p.fail(p.line, "has no url")
	}
	for _, t := range p.expand.troubles {
		if t.warning {
			p.warn(t.line, "%s", t.reason)
		} else {
			p.fail(t.line, "%s", t.reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.expand.miss)) {
		p.warn(p.line, "the variable %s is not set", name)
	}
	if p.failed {
		return
	}
	used := p.expand.used
	if p.url != "" && (p.kind != Stdio || !command) {
		p.remote.Transport = p.kind
		if p.kind == "" {
			p.remote.Transport = p.dialect.plainURL
		}
		p.checkURL(n)
		if p.failed {
			return
		}
		p.def.setRemote(p.remote, p.url, used)
	} else {
		p.written.Dir = p.real.Dir
		p.def.setLaunch(p.real, p.written, used)
	}
	p.def.launch.references = p.expand.refers
	p.def.launch.digest = p.digest(n)
	if p.source.Project != "" {
		p.def.launch.written = n.json()
		p.def.launch.also = p.also(n)
	}
	uses := slices.Clone(p.expand.uses)
	for name := range used {
		if !slices.Contains(everyday, name) {
			uses = append(uses, name)
		}
	}
	for name := range p.expand.miss { // it may be set later
		uses = append(uses, name)
	}
	slices.Sort(uses)
	p.def.Uses = slices.Compact(uses)
}

// command is a string, a list that includes the arguments (OpenCode), or an
// object (Zed).
func (p *entryParser) command(key string, v *node) {
	switch v.kind {
	case '[':
		all := p.strings(key, v)
		if len(all) > 0 {
			p.written.Command, p.real.Command = all[0], p.expand.path(all[0])
			p.setArgs(all[1:])
		}
	case '{':
		if p.strict {
			p.fail(v.line, "%s must be a string, not an object", key)
			return
		}
		for i := range v.members {
			switch m := &v.members[i]; m.key {
			case "path":
				p.command("command.path", &m.value)
			case "args":
				p.setArgs(p.strings("command.args", &m.value))
			case "env":
				p.merge(&p.real.Env, p.environment("command.env", &m.value))
			}
		}
	default:
		p.written.Command = p.string(key, v)
		p.real.Command = p.expand.path(p.written.Command)
	}
}

func (p *entryParser) setArgs(args []string) {
	p.written.Args = args
	p.real.Args = nil
	for _, arg := range args {
		p.real.Args = append(p.real.Args, p.expand.path(arg))
	}
}

func (p *entryParser) merge(into *map[string]string, more map[string]string) {
	if *into == nil {
		*into = more
		return
	}
	maps.Copy(*into, more)
}

// passOn passes variables of our environment to the server, by name.
func (p *entryParser) passOn(key string, v *node) {
	if v.kind != '[' || len(v.items) > maxArgs {
		if v.kind != 'n' {
			p.fail(v.line, "%s must be a list of names, not %s", key, v.what())
		}
		return
	}
	env := make(map[string]string)
	for i := range v.items {
		item := &v.items[i]
		if item.kind == '{' { // Codex also has {name, source}
			item = item.at("name")
		}
		name := p.string(key, item)
		if !isName(name) {
			p.fail(item.line, "%s: %q cannot be the name of a variable", key, clip(name))
			continue
		}
		if value, ok := p.expand.env(name); p.expand.translate {
			env[name] = "${" + name + "}"
		} else if ok {
			p.expand.used[name] = value
			env[name] = value
		} else if key == "env_keys" {
			p.expand.miss[name] = struct{}{} // Goose keeps them where only Goose can read
		}
	}
	for name, value := range p.real.Env {
		env[name] = value // an explicit value wins
	}
	p.real.Env = env
}

func (p *entryParser) transport(key string, v *node) {
	word := p.string(key, v)
	kind, ok := transports[strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(word))]
	if !ok && !p.failed {
		p.fail(v.line, "unknown %s %q: stdio, http and sse are supported", key, clip(word))
	}
	p.kind = kind
}

// timeout reads how long a start or a call may take. An invalid value is left
// out, because it was meant for another client.
func (p *entryParser) timeout(key string, v *node) {
	unit, start := time.Second, strings.HasPrefix(key, "start")
	switch key {
	case "timeout":
		unit, start = p.dialect.timeout, p.dialect.startTimeout
	case "startup_timeout_ms":
		unit = time.Millisecond
	}
	if unit == 0 || v.kind == 'n' {
		return
	}
	var d time.Duration
	seconds, err := strconv.ParseFloat(v.text, 64)
	switch {
	case (v.kind == '0' || v.kind == '"') && err == nil:
		d = time.Duration(min(seconds*float64(unit), float64(maxTimeout)))
	case v.kind == '"':
		d, err = time.ParseDuration(v.text)
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || !(d > 0) {
		p.warn(v.line, "%s is not a duration and is ignored: write seconds, or a number with a unit such as 90s", key)
		return
	}
	d = min(d, maxTimeout)
	if start {
		p.def.StartTimeout = d
	} else {
		p.def.CallTimeout = d
	}
}

// sharing reads for whom one server runs. An unknown word is left out in another
// client's file, where it means something else.
func (p *entryParser) sharing(key string, v *node) {
	switch {
	case v.kind == 'n':
	case v.kind == '"' && slices.Contains(SharingNames(), v.text):
		p.def.Sharing = Sharing(v.text)
	case p.strict:
		p.fail(v.line, "%s must be one of %s", key, strings.Join(SharingNames(), ", "))
	}
}
