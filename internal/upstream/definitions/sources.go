package definitions

import (
	"path/filepath"
	"slices"
)

// Source is a file of definitions, or a directory of *.json files.
type Source struct {
	// Name is the kind of place, as the setting servers.sources knows it.
	Name string
	File string
	Dir  string
	// Optional means that the file need not exist, and need not have any servers.
	// Directories need never exist.
	Optional bool
	// Project is the folder of a file that did not come from the user: its
	// definitions are offered. It is empty for the user's own files.
	Project string

	dialect *dialect // nil: our own format
}

// Places determines where definitions are looked for.
type Places struct {
	OS   string // as runtime.GOOS
	Home string
	// Dir is the working directory: other clients' files may have settings for it,
	// and its own files are offered. It may be empty.
	Dir string
	Env Environment
}

// Names of sources that are not clients.
const (
	NameConfig   = "config"   // files that the user names, before all others
	NameMCPs     = "mcps"     // ~/MCPs
	NameProject  = "project"  // files in the working directory
	NameFallback = "fallback" // the file that comes last
	// NameRequested is the source of servers that code asked for and was granted.
	NameRequested = "requested"
)

// SourceNames returns the sources that can be chosen, in order of precedence. A
// file that the user names is always read.
func SourceNames() []string {
	return []string{
		NameMCPs, "mcp", "claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "zed", "cline",
		"codex", "gemini", "antigravity", "opencode", "goose", "copilot", NameProject,
	}
}

// MCPs returns the user's own folder of definitions, or an empty string without
// a home directory.
func (p Places) MCPs() string { return p.under(p.Home, "MCPs") }

// under joins paths, unless base is empty.
func (p Places) under(base string, parts ...string) string {
	if base == "" {
		return ""
	}
	return filepath.Join(append([]string{base}, parts...)...)
}

// variable returns a directory that a variable names, or the usual one.
func (p Places) variable(name, usual string) string {
	if p.Env != nil {
		if v, ok := p.Env(name); ok && filepath.IsAbs(v) {
			return v
		}
	}
	return usual
}

// config returns where desktop programs keep their settings.
func (p Places) config() string {
	switch p.OS {
	case "windows":
		return p.variable("APPDATA", p.under(p.Home, "AppData", "Roaming"))
	case "darwin":
		return p.under(p.Home, "Library", "Application Support")
	}
	return p.xdg()
}

// xdg returns where command line programs keep their settings, on a Mac, too.
func (p Places) xdg() string {
	return p.variable("XDG_CONFIG_HOME", p.under(p.Home, ".config"))
}

// Sources returns the user's sources and the project's, in order of precedence:
// the first definition of a name wins. names chooses among SourceNames; "*"
// means all.
func (p Places) Sources(names []string) []Source {
	var out []Source
	add := func(name string, d *dialect, path string) {
		if path != "" {
			out = append(out, Source{Name: name, File: path, Optional: true, dialect: d})
		}
	}
	folder := func(name, path string) {
		if path != "" {
			out = append(out, Source{Name: name, Dir: path})
		}
	}
	code := []string{p.under(p.config(), "Code", "User"), p.under(p.config(), "Code - Insiders", "User")}

	folder(NameMCPs, p.MCPs())
	folder("mcp", p.under(p.xdg(), "mcp", "servers"))
	add("claude-desktop", claudeDesktop, p.under(p.config(), "Claude", "claude_desktop_config.json"))
	claude := p.under(p.Home, ".claude.json")
	if dir := p.variable("CLAUDE_CONFIG_DIR", ""); dir != "" {
		claude = filepath.Join(dir, ".claude.json")
	}
	add("claude-code", claudeCode, claude)
	if p.OS == "darwin" {
		add("claude-code", claudeCode, p.under(p.config(), "Claude Code", "claude_code_config.json"))
	}
	add("cursor", cursor, p.under(p.Home, ".cursor", "mcp.json"))
	for _, dir := range code {
		add("vscode", vscode, p.under(dir, "mcp.json"))
		add("vscode", vscodeSettings, p.under(dir, "settings.json"))
	}
	add("windsurf", windsurf, p.under(p.Home, ".codeium", "windsurf", "mcp_config.json"))
	if p.OS == "windows" {
		add("zed", zed, p.under(p.config(), "Zed", "settings.json"))
	} else {
		add("zed", zed, p.under(p.xdg(), "zed", "settings.json"))
	}
	for _, dir := range code {
		add("cline", cline, p.under(dir, "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json"))
	}
	add("codex", codex, p.under(p.variable("CODEX_HOME", p.under(p.Home, ".codex")), "config.toml"))
	add("gemini", gemini, p.under(p.Home, ".gemini", "settings.json"))
	add("antigravity", windsurf, p.under(p.Home, ".gemini", "antigravity", "mcp_config.json"))
	for _, name := range []string{"opencode.json", "opencode.jsonc"} {
		add("opencode", opencode, p.under(p.xdg(), "opencode", name))
	}
	add("opencode", opencode, p.under(p.Home, ".opencode.json"))
	if p.OS == "windows" {
		add("goose", goose, p.under(p.config(), "Block", "goose", "config", "config.yaml"))
	} else {
		add("goose", goose, p.under(p.xdg(), "goose", "config.yaml"))
	}
	add("copilot", copilot, p.under(p.Home, ".copilot", "mcp-config.json"))
	out = append(out, p.project()...)
	return slices.DeleteFunc(out, func(s Source) bool {
		return !slices.Contains(names, "*") && !slices.Contains(names, s.Name)
	})
}

// project returns the files that a folder can bring along. There are none for
// the home directory: what is there is the user's own.
func (p Places) project() []Source {
	if p.Dir == "" || p.Dir == p.Home || !filepath.IsAbs(p.Dir) || filepath.Dir(p.Dir) == p.Dir {
		return nil
	}
	out := []Source{{Name: NameProject, Dir: filepath.Join(p.Dir, "mcp-servers"), Project: p.Dir}}
	for _, f := range []struct {
		dialect *dialect
		path    string
	}{
		{claudeCode, ".mcp.json"},
		{cursor, ".cursor/mcp.json"},
		{vscode, ".vscode/mcp.json"},
		{vscodeSettings, ".vscode/settings.json"},
		{zed, ".zed/settings.json"},
		{codex, ".codex/config.toml"},
		{gemini, ".gemini/settings.json"},
		{opencode, "opencode.json"},
		{opencode, "opencode.jsonc"},
		{copilot, ".github/mcp.json"},
	} {
		out = append(out, Source{Name: NameProject, File: filepath.Join(p.Dir, filepath.FromSlash(f.path)), Optional: true, Project: p.Dir, dialect: f.dialect})
	}
	return out
}
