package definitions

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// variables are set on every machine of these tests.
var variables = map[string]string{"TOKEN": "s3cr3t-token", "EMPTY": "", "INPUT_API_KEY": "input-s3cr3t"}

// machine makes a home and a project from files, whose paths begin with home/
// or project/, and says where things are on that system.
func machine(t *testing.T, system string, files map[string]string) Places {
	t.Helper()
	dir := t.TempDir()
	p := Places{OS: system, Home: filepath.Join(dir, "home"), Dir: filepath.Join(dir, "project"), Env: environment(variables)}
	for _, d := range []string{p.Home, p.Dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range files {
		text = strings.NewReplacer("HOME", filepath.ToSlash(p.Home), "PROJECT", filepath.ToSlash(p.Dir)).Replace(text)
		write(t, filepath.Join(dir, filepath.FromSlash(path)), text)
	}
	return p
}

func (p Places) load(names ...string) ([]Definition, []Problem) {
	if names == nil {
		names = []string{"*"}
	}
	return Load(p.Sources(names), Options{Env: p.Env, Home: p.Home, Dir: p.Dir, Places: p, Self: Self{}})
}

// places of every client on every system.
var places = []struct {
	source             string
	linux, darwin, win string
	text               string
}{
	{"mcps", "MCPs/x.json", "MCPs/x.json", "MCPs/x.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"mcp", ".config/mcp/servers/x.json", ".config/mcp/servers/x.json", ".config/mcp/servers/x.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"claude-desktop", ".config/Claude/claude_desktop_config.json", "Library/Application Support/Claude/claude_desktop_config.json", "AppData/Roaming/Claude/claude_desktop_config.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"claude-code", ".claude.json", ".claude.json", ".claude.json", `{"mcpServers": {"x": {"command": "c", "type": "stdio"}}}`},
	{"cursor", ".cursor/mcp.json", ".cursor/mcp.json", ".cursor/mcp.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"vscode", ".config/Code/User/mcp.json", "Library/Application Support/Code/User/mcp.json", "AppData/Roaming/Code/User/mcp.json", `{"servers": {"x": {"command": "c", "type": "stdio"}}}`},
	{"vscode", ".config/Code/User/settings.json", "Library/Application Support/Code/User/settings.json", "AppData/Roaming/Code/User/settings.json", `{"editor.fontSize": 12, "mcp": {"servers": {"x": {"command": "c"}}}}`},
	{"windsurf", ".codeium/windsurf/mcp_config.json", ".codeium/windsurf/mcp_config.json", ".codeium/windsurf/mcp_config.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"zed", ".config/zed/settings.json", ".config/zed/settings.json", "AppData/Roaming/Zed/settings.json", `{"theme": "One", "context_servers": {"x": {"source": "custom", "command": "c"}}}`},
	{"cline", ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", "AppData/Roaming/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", `{"mcpServers": {"x": {"command": "c", "autoApprove": ["t"]}}}`},
	{"codex", ".codex/config.toml", ".codex/config.toml", ".codex/config.toml", "model = \"m\"\n[mcp_servers.x]\ncommand = \"c\"\n"},
	{"gemini", ".gemini/settings.json", ".gemini/settings.json", ".gemini/settings.json", `{"mcpServers": {"x": {"command": "c", "trust": true}}}`},
	{"antigravity", ".gemini/antigravity/mcp_config.json", ".gemini/antigravity/mcp_config.json", ".gemini/antigravity/mcp_config.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"opencode", ".config/opencode/opencode.json", ".config/opencode/opencode.json", ".config/opencode/opencode.json", `{"mcp": {"x": {"type": "local", "command": ["c"], "enabled": true}}}`},
	{"opencode", ".config/opencode/opencode.jsonc", ".config/opencode/opencode.jsonc", ".config/opencode/opencode.jsonc", `{"mcp": {"servers": {"x": {"type": "local", "command": ["c"]}}}} // v2`},
	{"opencode", ".opencode.json", ".opencode.json", ".opencode.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"goose", ".config/goose/config.yaml", ".config/goose/config.yaml", "AppData/Roaming/Block/goose/config/config.yaml", "GOOSE_MODEL: m\nextensions:\n  x:\n    type: stdio\n    cmd: c\n    enabled: true\n  developer:\n    type: builtin\n    enabled: true\n"},
	{"copilot", ".copilot/mcp-config.json", ".copilot/mcp-config.json", ".copilot/mcp-config.json", `{"mcpServers": {"x": {"type": "local", "command": "c", "tools": ["*"]}}}`},
	{"kiro", ".kiro/settings/mcp.json", ".kiro/settings/mcp.json", ".kiro/settings/mcp.json", `{"mcpServers": {"x": {"command": "c", "autoApprove": ["t"], "disabled": false}}}`},
	{"crush", ".config/crush/crush.json", ".config/crush/crush.json", "AppData/Local/crush/crush.json", `{"$schema": "s", "mcp": {"x": {"type": "stdio", "command": "c"}}}`},
	{"lmstudio", ".lmstudio/mcp.json", ".lmstudio/mcp.json", ".lmstudio/mcp.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"lmstudio", ".cache/lm-studio/mcp.json", ".cache/lm-studio/mcp.json", ".cache/lm-studio/mcp.json", `{"mcpServers": {"x": {"command": "c"}}}`},
	{"continue", ".continue/config.yaml", ".continue/config.yaml", ".continue/config.yaml", "name: n\nmcpServers:\n  - name: x\n    command: c\n"},
}

func TestPlacesOfEveryClient(t *testing.T) {
	covered := map[string]bool{NameProject: true}
	for _, place := range places {
		covered[place.source] = true
		for system, path := range map[string]string{"linux": place.linux, "darwin": place.darwin, "windows": place.win} {
			t.Run(place.source+" "+system, func(t *testing.T) {
				p := machine(t, system, map[string]string{"home/" + path: place.text})
				defs, problems := p.load()
				if len(defs) != 1 || len(problems) != 0 {
					t.Fatalf("%v %v", defs, problems)
				}
				d := defs[0]
				if d.Source != place.source || d.File != filepath.Join(p.Home, filepath.FromSlash(path)) || d.Line < 1 ||
					d.Launch().Command != "c" || d.State() != "ready" || d.Transport != Stdio {
					t.Errorf("%+v", d)
				}
				if only, _ := p.load(place.source); len(only) != 1 {
					t.Errorf("chosen alone: %v", only)
				}
				if none, _ := p.load(slices.DeleteFunc(SourceNames(), func(s string) bool { return s == place.source })...); len(none) != 0 {
					t.Errorf("not chosen: %v", none)
				}
			})
		}
	}
	for _, name := range SourceNames() {
		if !covered[name] {
			t.Errorf("nothing is said of %s", name)
		}
	}
}

func TestPlacesThatVariablesName(t *testing.T) {
	p := machine(t, "linux", map[string]string{
		"home/xdg/goose/config.yaml":       "extensions: {g: {type: stdio, cmd: g}}",
		"home/codex/config.toml":           "[mcp_servers.c]\ncommand = 'c'",
		"home/claude/.claude.json":         `{"mcpServers": {"l": {"command": "l"}}}`,
		"home/roaming/Zed/settings.json":   `{"context_servers": {"z": {"command": "z"}}}`,
		"home/.config/zed/settings.json":   `{"context_servers": {"not": {"command": "z"}}}`,
		"home/.codex/config.toml":          "[mcp_servers.not]\ncommand = 'c'",
		"home/xdg/mcp/servers/ignored.txt": `{`,
	})
	vars := map[string]string{
		"XDG_CONFIG_HOME": filepath.Join(p.Home, "xdg"), "CODEX_HOME": filepath.Join(p.Home, "codex"),
		"CLAUDE_CONFIG_DIR": filepath.Join(p.Home, "claude"), "APPDATA": filepath.Join(p.Home, "roaming"),
	}
	p.Env = environment(vars)
	defs, problems := p.load()
	if got := show(problems) + namesOf(defs); got != "c g l" {
		t.Error(got)
	}
	p.OS = "windows"
	p.Env = environment(map[string]string{"APPDATA": vars["APPDATA"]})
	if defs, _ := p.load("zed"); namesOf(defs) != "z" {
		t.Error(defs)
	}
	if defs, problems := (Places{OS: "linux"}).load(); len(defs) != 0 || len(problems) != 0 {
		t.Errorf("without a home: %v %v", defs, problems)
	}
}

func namesOf(defs []Definition) string {
	var names []string
	for _, d := range defs {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

func TestTheFirstDefinitionCounts(t *testing.T) {
	files := map[string]string{}
	for _, place := range places {
		files["home/"+place.linux] = place.text
	}
	p := machine(t, "linux", files)
	var order []string
	for i := range places {
		defs, problems := p.load()
		if len(defs) != 1 || len(problems) != 0 {
			t.Fatalf("%v %v", defs, problems)
		}
		d := defs[0]
		if len(d.Shadowed) != len(places)-1-i {
			t.Errorf("%s hides %d others, not %d", d.Source, len(d.Shadowed), len(places)-1-i)
		}
		order = append(order, d.Source)
		if err := os.Remove(d.File); err != nil {
			t.Fatal(err)
		}
	}
	if want := slices.DeleteFunc(SourceNames(), func(s string) bool { return s == NameProject }); !slices.Equal(slices.Compact(order), want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}

// shape is one entry in one client's file, and what it means.
type shape struct {
	name, source, file, text string
	command                  string // of the first server, with arguments
	env                      string // "A=b C=d"
	remote                   string // transport, URL and headers
	want                     func(Definition) bool
	problems                 string
	servers                  string // names, when not "x"
}

var shapes = []shape{
	{name: "Claude Desktop expands nothing", source: "claude-desktop", file: ".config/Claude/claude_desktop_config.json",
		text:    `{"mcpServers": {"x": {"command": "~/c", "args": ["${TOKEN}", "$TOKEN"], "env": {"A": "${TOKEN}"}}}, "globalShortcut": ""}`,
		command: "~/c ${TOKEN} $TOKEN", env: "A=${TOKEN}"},
	{name: "Claude Code", source: "claude-code", file: ".claude.json",
		text:    `{"numStartups": 5, "mcpServers": {"x": {"type": "stdio", "command": "c", "args": ["${TOKEN}", "${NONE}", "${NONE:-d}", "${env:TOKEN}"], "env": {"A": "${EMPTY:-e}"}}}}`,
		command: "c s3cr3t-token ${NONE} d ${env:TOKEN}", env: "A=e", problems: ".claude.json:1: server x: warning: the variable NONE is not set\n"},
	{name: "Claude Code, remote", source: "claude-code", file: ".claude.json",
		text:   `{"mcpServers": {"x": {"type": "http", "url": "https://${NONE:-h}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}`,
		remote: "http https://h/mcp Authorization=Bearer s3cr3t-token"},
	{name: "Claude Code, sse", source: "claude-code", file: ".claude.json",
		text: `{"mcpServers": {"x": {"type": "sse", "url": "https://h/sse"}}}`, remote: "sse https://h/sse"},
	{name: "Claude Code, of this folder", source: "claude-code", file: ".claude.json",
		text:    `{"mcpServers": {"x": {"command": "all"}, "y": {"command": "y"}}, "projects": {"PROJECT": {"history": [{"display": "mcpServers"}], "mcpServers": {"x": {"command": "local"}}, "disabledMcpServers": ["y"]}, "/elsewhere": {"mcpServers": {"z": {"command": "z"}}}}}`,
		command: "local", servers: "x y:disabled"},
	{name: "Cursor", source: "cursor", file: ".cursor/mcp.json",
		text:    "// a comment\n{\"mcpServers\": {\"x\": {\"command\": \"${userHome}/c\", \"args\": [\"${env:TOKEN}\", \"${workspaceFolder}\", \"${workspaceFolderBasename}\", \"${TOKEN}\", \"a${/}b\", \"${env:NONE}\"],},},}",
		command: "HOME/c s3cr3t-token PROJECT project ${TOKEN} a" + string(filepath.Separator) + "b ", problems: "mcp.json:2: server x: warning: the variable NONE is not set\n"},
	{name: "Cursor, remote", source: "cursor", file: ".cursor/mcp.json",
		text:   `{"mcpServers": {"x": {"url": "https://h/mcp", "headers": {"K": "${env:TOKEN}"}, "auth": {"CLIENT_ID": "x"}}}}`,
		remote: "auto https://h/mcp K=s3cr3t-token"},
	{name: "VS Code", source: "vscode", file: ".config/Code/User/mcp.json",
		text:    `{"inputs": [{"type": "promptString", "id": "api-key", "password": true}, {"id": "region", "default": "eu"}], "servers": {"x": {"type": "stdio", "command": "c", "args": ["${input:region}", "${workspaceFolder}/x"], "env": {"K": "${input:api-key}"}, "envFile": "${userHome}/vars"}}}`,
		command: "c eu PROJECT/x", env: "FROM=file K=input-s3cr3t"},
	{name: "VS Code, an input that nobody answers", source: "vscode", file: ".config/Code/User/mcp.json",
		text:   `{"servers": {"x": {"url": "https://h", "type": "http", "headers": {"K": "Bearer ${input:other one}"}}}}`,
		remote: "http https://h K=Bearer ${keyring:input/other one}", want: func(d Definition) bool { return slices.Equal(d.Uses, []string{"keyring:input/other one"}) }},
	{name: "VS Code's settings", source: "vscode", file: ".config/Code/User/settings.json",
		text:    "{\n  // settings\n  \"files.exclude\": {\"a\": [1, 2, {}]},\n  \"mcp\": {\"inputs\": [{\"id\": \"q\", \"default\": \"w\"}], \"servers\": {\"x\": {\"command\": \"c\", \"args\": [\"${input:q}\"]}}},\n}",
		command: "c w"},
	{name: "VS Code's settings with mcpServers", source: "vscode", file: ".config/Code/User/settings.json", text: `{"mcpServers": {"x": {"command": "c"}}}`, command: "c"},
	{name: "Windsurf", source: "windsurf", file: ".codeium/windsurf/mcp_config.json",
		text:   `{"mcpServers": {"x": {"serverUrl": "https://h/sse", "headers": {"A": "Bearer ${env:TOKEN}"}, "disabledTools": ["rm"]}, "y": {"command": "y", "disabled": true}}}`,
		remote: "auto https://h/sse A=Bearer s3cr3t-token", servers: "x y:disabled", want: func(d Definition) bool { return !d.ToolAllowed("rm") && d.ToolAllowed("ls") }},
	{name: "Zed", source: "zed", file: ".config/zed/settings.json",
		text:    "{\"lsp\": {}, // zed\n\"context_servers\": {\"x\": {\"command\": {\"path\": \"c\", \"args\": [\"a\"], \"env\": {\"A\": \"b\", \"N\": null}}}, \"ext\": {\"source\": \"extension\", \"settings\": {}}, \"y\": {\"enabled\": false, \"command\": \"y\", \"args\": []}}}",
		command: "c a", env: "A=b", servers: "x y:disabled"},
	{name: "Zed, a profile", source: "zed", file: ".config/zed/settings.json",
		text:    `{"context_servers": {"x": {"command": "c"}}, "agent": {"default_profile": "ask", "default_model": {"model": "m"}, "profiles": {"ask": {"context_servers": {"x": {"tools": {"rm": false, "ls": true}}}}, "write": {"context_servers": {"x": {"tools": {"ls": false}}}}}}}`,
		command: "c", want: func(d Definition) bool { return !d.ToolAllowed("rm") && d.ToolAllowed("ls") }},
	{name: "Zed, remote", source: "zed", file: ".config/zed/settings.json", text: `{"context_servers": {"x": {"url": "https://h", "headers": {}}}}`, remote: "auto https://h"},
	{name: "Cline", source: "cline", file: ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
		text:   `{"mcpServers": {"x": {"url": "https://h/sse", "timeout": 90, "autoApprove": ["a"], "alwaysAllow": []}, "y": {"type": "streamableHttp", "url": "https://h", "disabled": true}}}`,
		remote: "sse https://h/sse", servers: "x y:disabled", want: func(d Definition) bool { return d.CallTimeout == 90*time.Second && d.ToolAllowed("b") }},
	{name: "Codex", source: "codex", file: ".codex/config.toml",
		text:    "model = \"o\"\n\n[mcp_servers.x]\ncommand = \"c\"\nargs = [\"-y\", \"$TOKEN\"]\nenv_vars = [\"TOKEN\", \"NONE\"]\ncwd = \"HOME\"\nstartup_timeout_sec = 20\ntool_timeout_sec = 1.5\nenabled_tools = [\"a\", \"b\"]\ndisabled_tools = [\"b\"]\nrequired = true\n[mcp_servers.x.env]\nA = \"b\"\n[mcp_servers.x.tools.a]\napproval_mode = \"approve\"\n[mcp_servers.x.tools.a2]\nenabled = false\n",
		command: "c -y $TOKEN", env: "A=b TOKEN=s3cr3t-token", want: func(d Definition) bool {
			return d.ToolAllowed("a") && !d.ToolAllowed("b") && !d.ToolAllowed("a2") && d.Line == 3 && d.Dir != ""
		}},
	{name: "Codex, restrictions", source: "codex", file: ".codex/config.toml",
		text:    "[mcp_servers.x]\ncommand = \"c\"\nenv_vars = [{name = \"TOKEN\", source = \"local\"}]\nstartup_timeout_sec = 20\ntool_timeout_sec = 1.5\nenabled_tools = [\"a\", \"b\"]\ndisabled_tools = [\"b\"]\n[mcp_servers.\"y z\"]\ncommand = 'y'\nenabled = false\n",
		command: "c", env: "TOKEN=s3cr3t-token", servers: "x y z:disabled", want: func(d Definition) bool {
			return d.StartTimeout == 20*time.Second && d.CallTimeout == 1500*time.Millisecond && d.ToolAllowed("a") && !d.ToolAllowed("b") && !d.ToolAllowed("c") && d.Line == 1
		}},
	{name: "Codex, remote", source: "codex", file: ".codex/config.toml",
		text:   "[mcp_servers.x]\nurl = \"https://h/mcp\"\nbearer_token_env_var = \"TOKEN\"\nhttp_headers = { A = \"b\" }\nenv_http_headers = { B = \"TOKEN\", C = \"NONE\" }\n",
		remote: "http https://h/mcp A=b Authorization=Bearer s3cr3t-token B=s3cr3t-token", problems: "config.toml:1: server x: warning: the variable NONE is not set\n"},
	{name: "Gemini", source: "gemini", file: ".gemini/settings.json",
		text:    `{"mcpServers": {"x": {"command": "c", "args": ["$TOKEN", "${TOKEN}!", "$", "$1", "${NONE:-d}"], "env": {"A": "$TOKEN-x"}, "timeout": 5000, "includeTools": ["a", "b"], "excludeTools": ["b"]}, "y": {"command": "y"}, "z": {"command": "z"}}, "mcp": {"allowed": ["x", "y"], "excluded": ["y"]}}`,
		command: "c s3cr3t-token s3cr3t-token! $ $1 d", env: "A=s3cr3t-token-x", servers: "x y:disabled z:disabled",
		want: func(d Definition) bool {
			return d.CallTimeout == 5*time.Second && d.ToolAllowed("a") && !d.ToolAllowed("b")
		}},
	{name: "Gemini, url is sse", source: "gemini", file: ".gemini/settings.json", text: `{"mcpServers": {"x": {"url": "https://h/sse"}}}`, remote: "sse https://h/sse"},
	{name: "Gemini, httpUrl", source: "gemini", file: ".gemini/settings.json", text: `{"mcpServers": {"x": {"url": "https://h/sse", "httpUrl": "https://h/mcp"}}}`, remote: "http https://h/mcp"},
	{name: "OpenCode 1", source: "opencode", file: ".config/opencode/opencode.json",
		text:    `{"mcp": {"x": {"type": "local", "command": ["c", "a", "{env:TOKEN}", "{env:NONE}"], "environment": {"A": "{env:TOKEN}", "J": "{\"a\": 1}"}, "timeout": 3000}, "y": {"type": "remote", "url": "https://h", "enabled": false}}, "tools": {"x_rm": false, "y_*": false, "x_ls": true}}`,
		command: "c a s3cr3t-token ", env: `A=s3cr3t-token J={"a": 1}`, servers: "x y:disabled", problems: "opencode.json:1: server x: warning: the variable NONE is not set\n",
		want: func(d Definition) bool {
			return d.StartTimeout == 3*time.Second && !d.ToolAllowed("rm") && d.ToolAllowed("ls")
		}},
	{name: "OpenCode 2", source: "opencode", file: ".config/opencode/opencode.jsonc",
		text:   "{\"mcp\": {\"timeout\": 5, \"servers\": {\"x\": {\"type\": \"remote\", \"url\": \"https://h/mcp\", \"headers\": {\"K\": \"{file:~/key}\"}}, /* off */ \"y\": {\"type\": \"local\", \"command\": [\"y\"], \"disabled\": true},}}}",
		remote: "auto https://h/mcp K=${file:HOME/key}", servers: "x y:disabled"},
	{name: "OpenCode, all of a server's tools off", source: "opencode", file: ".config/opencode/opencode.json",
		text: `{"mcp": {"x": {"type": "local", "command": ["c"]}}, "tools": {"x*": false}}`, command: "c", want: func(d Definition) bool { return !d.ToolAllowed("any") }},
	{name: "Goose", source: "goose", file: ".config/goose/config.yaml",
		text:    "GOOSE_PROVIDER: x\nextensions:\n  x:\n    name: X\n    type: stdio\n    cmd: c\n    args:\n    - -y\n    - a b\n    envs: {A: b}\n    env_keys: [TOKEN]\n    timeout: 300\n    enabled: true\n    bundled: null\n    available_tools: []\n    description: 'what: it does'\n  y:\n    type: sse\n    uri: https://h/sse\n    enabled: false\n  memory:\n    type: builtin\n    name: memory\n",
		command: "c -y a b", env: "A=b TOKEN=s3cr3t-token", servers: "x y:disabled",
		want: func(d Definition) bool {
			return d.CallTimeout == 5*time.Minute && d.ToolAllowed("any") && d.Description == "what: it does" && d.Line == 3
		}},
	{name: "Goose, remote", source: "goose", file: ".config/goose/config.yaml",
		text:   "extensions:\n  x:\n    type: streamable_http\n    uri: https://h/mcp\n    headers:\n      K: v\n    available_tools: [a]\n",
		remote: "http https://h/mcp K=v", want: func(d Definition) bool { return d.ToolAllowed("a") && !d.ToolAllowed("b") }},
	{name: "Copilot", source: "copilot", file: ".copilot/mcp-config.json",
		text:    `{"mcpServers": {"x": {"type": "local", "command": "c", "env": {"A": "${TOKEN}", "B": "$TOKEN"}, "tools": ["a"]}, "y": {"type": "http", "url": "https://h", "tools": []}}}`,
		command: "c", env: "A=s3cr3t-token B=s3cr3t-token", servers: "x y", want: func(d Definition) bool { return d.ToolAllowed("a") && !d.ToolAllowed("b") }},
	{name: "Kiro", source: "kiro", file: ".kiro/settings/mcp.json",
		text:    "{\"mcpServers\": {\"x\": {\"command\": \"c\", \"env\": {\"A\": \"${TOKEN}\"}, \"autoApprove\": [\"a\"], \"disabledTools\": [\"b\"]}, // mine\n\"y\": {\"url\": \"https://h\", \"disabled\": true}}}",
		command: "c", env: "A=s3cr3t-token", servers: "x y:disabled", want: func(d Definition) bool { return d.ToolAllowed("a") && !d.ToolAllowed("b") }},
	{name: "Crush", source: "crush", file: ".config/crush/crush.json",
		text:    `{"providers": {}, "mcp": {"x": {"type": "stdio", "command": "c", "args": ["$TOKEN"], "timeout": 120, "disabled_tools": ["b"]}, "y": {"type": "http", "url": "https://h", "disabled": true}}}`,
		command: "c s3cr3t-token", servers: "x y:disabled", want: func(d Definition) bool { return d.CallTimeout == 2*time.Minute && !d.ToolAllowed("b") }},
	{name: "LM Studio", source: "lmstudio", file: ".lmstudio/mcp.json",
		text:    `{"mcpServers": {"x": {"command": "c", "args": ["a"]}}}`,
		command: "c a"},
	{name: "Continue", source: "continue", file: ".continue/config.yaml",
		text:    "name: n\nmcpServers:\n  - name: x\n    command: c\n    args: [a]\n    env:\n      A: b\n  - name: y\n    type: streamable-http\n    url: https://h\n",
		command: "c a", env: "A=b", servers: "x y", want: func(d Definition) bool { return d.Line == 3 }},
	{name: "Continue, remote", source: "continue", file: ".continue/config.yaml",
		text:   "mcpServers:\n  - name: x\n    type: sse\n    url: https://h\n    requestOptions:\n      headers:\n        K: v\n",
		remote: "sse https://h K=v"},
	{name: "ours, with references", source: "mcps", file: "MCPs/x.json",
		text:   `{"mcpServers": {"x": {"url": "https://h", "headers": {"A": "Bearer ${file:~/key}", "B": "${keyring:k}"}, "tls": {"caFile": "ca.pem", "insecure": true}, "startTimeout": "90s", "callTimeout": 5}}}`,
		remote: "auto https://h A=Bearer ${file:HOME/key} B=${keyring:k}", want: func(d Definition) bool {
			return d.Remote().TLS.Insecure && filepath.Base(d.Remote().TLS.CAFile) == "ca.pem" && d.StartTimeout == 90*time.Second && d.CallTimeout == 5*time.Second
		}},
	{name: "an empty file", source: "cursor", file: ".cursor/mcp.json", text: " \n", servers: "-"},
	{name: "nothing of servers", source: "zed", file: ".config/zed/settings.json", text: `{"theme": "x"}`, servers: "-"},
	{name: "Sallyport itself is no problem there", source: "cursor", file: ".cursor/mcp.json", text: `{"mcpServers": {"sallyport": {"command": "sallyport", "args": ["serve"]}, "x": {"command": "c"}}}`, command: "c"},
	{name: "a broken entry", source: "cursor", file: ".cursor/mcp.json", text: "{\"mcpServers\": {\n\"y\": {\"args\": []},\n\"x\": {\"command\": \"c\", \"unknown\": 1}}}", command: "c", problems: "mcp.json:2: server y: has no command and no url\n"},
	{name: "broken JSON with comments", source: "cursor", file: ".cursor/mcp.json", text: "// x\n{\"mcpServers\": {\n\"y\": }}", servers: "-", problems: "mcp.json:3: "},
	{name: "broken TOML", source: "codex", file: ".codex/config.toml", text: "a = 1\n[mcp_servers.x\n", servers: "-", problems: "config.toml:2: "},
	{name: "broken YAML", source: "goose", file: ".config/goose/config.yaml", text: "a: 1\nextensions:\n\t- x\n", servers: "-", problems: "config.yaml:3: "},
	{name: "YAML with anchors", source: "goose", file: ".config/goose/config.yaml", text: "a: &a [1]\nextensions: *a\n", servers: "-", problems: "config.yaml:1: anchors"},
	{name: "servers are no object", source: "codex", file: ".codex/config.toml", text: "mcp_servers = 5\n", servers: "-", problems: "config.toml:1: mcp_servers must be an object, not a number\n"},
}

func TestShapesOfEveryClient(t *testing.T) {
	covered := map[string]bool{}
	for _, test := range shapes {
		covered[test.source] = true
		t.Run(test.name, func(t *testing.T) {
			p := machine(t, "linux", map[string]string{"home/" + test.file: test.text, "home/vars": "# comment\nexport FROM=\"file\"\nK=overridden\n", "home/key": "k"})
			local := strings.NewReplacer("HOME", p.Home, "PROJECT", p.Dir)
			defs, problems := p.load()
			if got := show(problems); test.problems == "" && got != "" || !strings.HasPrefix(got, test.problems) {
				t.Errorf("problems: %q, want %q", got, test.problems)
			}
			var names []string
			for _, d := range defs {
				name := d.Name
				if d.Disabled {
					name += ":disabled"
				}
				names = append(names, name)
			}
			want := test.servers
			if want == "-" {
				if len(names) > 0 {
					t.Errorf("servers %v", names)
				}
				return
			}
			if want == "" {
				want = "x"
			}
			if strings.Join(names, " ") != want {
				t.Fatalf("servers %q, want %q", names, want)
			}
			d := defs[0]
			l := d.Launch()
			if got := strings.Join(append([]string{l.Command}, l.Args...), " "); got != local.Replace(test.command) {
				t.Errorf("command %q, want %q", got, local.Replace(test.command))
			}
			if got := sorted(l.Env); got != test.env {
				t.Errorf("env %q, want %q", got, test.env)
			}
			remote := ""
			if r := d.Remote(); r != nil {
				remote = strings.TrimSpace(string(r.Transport) + " " + r.URL + " " + sorted(r.Headers))
			}
			if remote != local.Replace(test.remote) {
				t.Errorf("remote %q, want %q", remote, local.Replace(test.remote))
			}
			if test.want != nil && !test.want(d) {
				t.Errorf("%+v", d)
			}
			for _, secret := range variables {
				if shown := d.String() + d.GoString() + asJSON(t, d); secret != "" && strings.Contains(shown, secret) {
					t.Errorf("%s shows a secret", shown)
				}
			}
		})
	}
	for _, name := range SourceNames() {
		if !covered[name] && name != "mcp" && name != NameProject && name != "antigravity" {
			t.Errorf("nothing is said of %s", name)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sorted(m map[string]string) string {
	var out []string
	for name, value := range m {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestProjects(t *testing.T) {
	files := map[string]string{
		"home/MCPs/mine.json":             `{"mcpServers": {"mine": {"command": "mine"}}}`,
		"home/.claude.json":               `{"projects": {"PROJECT": {"mcpServers": {"local": {"command": "c"}}, "disabledMcpjsonServers": ["claude2"]}}}`,
		"project/.mcp.json":               `{"mcpServers": {"claude": {"command": "c", "cwd": "."}, "claude2": {"command": "c"}, "mine": {"command": "theirs"}}}`,
		"project/.cursor/mcp.json":        `{"mcpServers": {"cursor": {"command": "${workspaceFolder}/c", "cwd": "."}}}`,
		"project/.vscode/mcp.json":        `{"servers": {"vscode": {"command": "c"}}}`,
		"project/.vscode/settings.json":   `{"mcp": {"servers": {"vscode2": {"command": "c"}}}}`,
		"project/.zed/settings.json":      `{"context_servers": {"zed": {"command": "c"}}}`,
		"project/.codex/config.toml":      "[mcp_servers.codex]\ncommand = 'c'\n",
		"project/.gemini/settings.json":   `{"mcpServers": {"gemini": {"command": "c"}}}`,
		"project/opencode.json":           `{"mcp": {"opencode": {"type": "local", "command": ["c"]}}}`,
		"project/.github/mcp.json":        `{"mcpServers": {"copilot": {"command": "c"}}}`,
		"project/mcp-servers/a.json":      `{"mcpServers": {"seed": {"command": "c"}}}`,
		"project/.claude/settings.json":   `{"permissions": {"deny": ["mcp__claude__rm", "mcp__local", "Bash(rm *)"]}}`,
		"project/mcp-servers/broken.json": `{`,
	}
	p := machine(t, "linux", files)
	defs, problems := p.load()
	if got := show(problems); got != "broken.json:1: the file ends in the middle of a value\n" {
		t.Error(got)
	}
	if got := namesOf(defs); got != "claude claude2 codex copilot cursor gemini local mine opencode seed vscode vscode2 zed" {
		t.Error(got)
	}
	digests := map[[32]byte]bool{}
	for _, d := range defs {
		own := d.Name == "mine" || d.Name == "local"
		if own != (d.Offer == "") || own == (d.Source == NameProject) || own == (d.Written() != "") {
			t.Errorf("%+v", d)
		}
		if d.Name == "cursor" && (d.Launch().Command != filepath.Join(p.Dir, "c") || d.Dir != p.Dir) {
			t.Errorf("%q in %q", d.Launch().Command, d.Dir)
		}
		if d.Name == "claude" && (d.ToolAllowed("rm") || !d.ToolAllowed("ls")) || d.Name == "local" && d.ToolAllowed("ls") {
			t.Errorf("%s: what Claude Code's settings forbid is allowed: %v", d.Name, d.DenyTools)
		}
		if d.Name == "claude2" != d.Disabled {
			t.Errorf("%s: disabled %v", d.Name, d.Disabled)
		}
		digests[d.Digest()] = true
	}
	if len(digests) < 4 {
		t.Errorf("%d digests", len(digests))
	}
	// The home directory is no project: what lies in it is the user's own.
	p.Dir = p.Home
	if defs, _ := p.load(); namesOf(defs) != "mine" {
		t.Error(defs)
	}
	// A project is a source like others, and can be left out.
	p.Dir = filepath.Join(filepath.Dir(p.Home), "project")
	if defs, _ := p.load("mcps"); namesOf(defs) != "mine" {
		t.Error(defs)
	}
}

func TestSame(t *testing.T) {
	base := `{"command": "c", "args": ["a"], "env": {"A": "b"}, "enabledTools": ["t"], "description": "d"}`
	parse := func(text string) Definition {
		t.Helper()
		d, err := Parse("x", json.RawMessage(text), Options{Env: environment(variables)}, true)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a := parse(base)
	if !a.Same(parse(strings.Replace(base, `"d"`, `"other words"`, 1))) || !a.Same(a) || !(Definition{}).Same(Definition{}) || a.Same(Definition{Name: "x"}) {
		t.Error("a description makes a difference, or something else does not")
	}
	for _, change := range []string{
		strings.Replace(base, `"c"`, `"d"`, 1), strings.Replace(base, `["a"]`, `["b"]`, 1), strings.Replace(base, `"b"`, `"c"`, 1),
		strings.Replace(base, `["t"]`, `[]`, 1), strings.Replace(base, `["t"]`, `null`, 1), strings.Replace(base, `"d"`, `"d", "disabledTools": ["x"]`, 1),
		strings.Replace(base, `"d"`, `"d", "disabled": true`, 1), strings.Replace(base, `"d"`, `"d", "callTimeout": 5`, 1),
		`{"url": "https://x"}`,
	} {
		if a.Same(parse(change)) {
			t.Errorf("%s is taken for the same", change)
		}
	}
	if parse(`{"url": "https://x", "headers": {"A": "b"}}`).Same(parse(`{"url": "https://x", "headers": {"A": "c"}}`)) {
		t.Error("a header makes no difference")
	}
}

func TestParseReadsNothingOfTheMachine(t *testing.T) {
	env := func(name string) (string, bool) {
		t.Errorf("the variable %s was looked up", name)
		return "x", true
	}
	d, err := Parse("x", json.RawMessage(`{"command": "~/c", "args": ["${TOKEN}", "${file:/etc/passwd}", "${keyring:k}"], "env": {"A": "${TOKEN}"}, "cwd": "/nonexistent"}`), Options{Env: env, Home: "/home/ann"}, false)
	if err != nil {
		t.Fatal(err)
	}
	if l := d.Launch(); l.Command != "~/c" || !slices.Equal(l.Args, []string{"${TOKEN}", "${file:/etc/passwd}", "${keyring:k}"}) || l.Env["A"] != "${TOKEN}" {
		t.Errorf("%q %q %q", l.Command, l.Args, l.Env)
	}
	resolved, err := d.Resolve(t.Context(), nil)
	if err != nil || !reflect.DeepEqual(resolved.Launch().Args, d.Launch().Args) {
		t.Errorf("%v: what is only written was resolved", err)
	}
}
