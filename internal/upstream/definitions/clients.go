package definitions

import (
	"path/filepath"
	"slices"

	"github.com/sallyport/sallyport/internal/edit"
)

// Client is a program that has MCP servers of its own: where it keeps them, and
// how it writes them.
type Client struct {
	Name  string // as settings and commands know it
	Title string // as people know it

	// user returns the user's files, in the order in which they are read.
	user func(p Places) []clientFile
	// project lists the files that a folder can bring along; paths have slashes.
	project []clientFile
	// signs returns folders that exist once the client has been used, and programs
	// are its names in the search path.
	signs    func(p Places) []string
	programs []string
	// entry is how a program is written as a server.
	entry func(name, command string, args []string) edit.Object
	// off is how the client switches a server off; the zero value: it cannot, and
	// the server is removed from its file.
	off Off
	// head is what a new file needs besides its servers.
	head string
}

// clientFile is a file of a client.
type clientFile struct {
	path    string
	dialect *dialect
	// write means that Sallyport may be added in this file. The first that exists
	// is chosen, or else the first whose folder exists, or else the first.
	write bool
	// folder means that all files next to it are read.
	folder bool
}

// Off is how a client switches off one of its servers.
type Off int

// The ways.
const (
	OffRemoved  Off = iota // not at all: the entry has to go
	OffDisabled            // "disabled": true in the entry
	OffEnabled             // "enabled": false in the entry
	OffExcluded            // its name in the list mcp.excluded
)

func plainEntry(_, command string, args []string) edit.Object {
	return edit.Object{{Key: "command", Value: command}, {Key: "args", Value: args}}
}

// stdioEntry returns how to write an entry with a type before the command, and
// more after the arguments.
func stdioEntry(kind string, more ...edit.Member) func(string, string, []string) edit.Object {
	return func(name, command string, args []string) edit.Object {
		return append(append(edit.Object{{Key: "type", Value: kind}}, plainEntry(name, command, args)...), more...)
	}
}

// userFile returns one file below the home directory.
func userFile(d *dialect, parts ...string) func(Places) []clientFile {
	return func(p Places) []clientFile {
		return []clientFile{{path: p.under(p.Home, parts...), dialect: d, write: true}}
	}
}

// atHome returns a folder below the home directory.
func atHome(parts ...string) func(Places) []string {
	return func(p Places) []string { return []string{p.under(p.Home, parts...)} }
}

// code returns VS Code's folders of settings.
func (p Places) code() []string {
	return []string{p.under(p.config(), "Code", "User"), p.under(p.config(), "Code - Insiders", "User")}
}

// table lists all clients, in the order in which their definitions count.
var table = []*Client{
	{
		Name: "claude-desktop", Title: "Claude Desktop", entry: plainEntry,
		user: func(p Places) []clientFile {
			return []clientFile{{path: p.under(p.config(), "Claude", "claude_desktop_config.json"), dialect: claudeDesktop, write: true}}
		},
		signs: func(p Places) []string { return []string{p.under(p.config(), "Claude")} },
	},
	{
		Name: "claude-code", Title: "Claude Code", programs: []string{"claude"},
		user: func(p Places) []clientFile {
			path := p.under(p.Home, ".claude.json")
			if dir := p.variable("CLAUDE_CONFIG_DIR", ""); dir != "" {
				path = filepath.Join(dir, ".claude.json")
			}
			files := []clientFile{{path: path, dialect: claudeCode, write: true}}
			if p.OS == "darwin" {
				files = append(files, clientFile{path: p.under(p.config(), "Claude Code", "claude_code_config.json"), dialect: claudeCode})
			}
			return files
		},
		project: []clientFile{{path: ".mcp.json", dialect: claudeCode, write: true}},
		signs: func(p Places) []string {
			return []string{p.variable("CLAUDE_CONFIG_DIR", p.under(p.Home, ".claude"))}
		},
		// Without alwaysLoad the model sees only names until it searches for tools.
		entry: stdioEntry("stdio", edit.Member{Key: "alwaysLoad", Value: true}),
	},
	{
		Name: "cursor", Title: "Cursor", programs: []string{"cursor"}, entry: stdioEntry("stdio"),
		user:    userFile(cursor, ".cursor", "mcp.json"),
		project: []clientFile{{path: ".cursor/mcp.json", dialect: cursor, write: true}},
		signs:   atHome(".cursor"),
	},
	{
		Name: "vscode", Title: "VS Code", programs: []string{"code", "code-insiders"}, entry: stdioEntry("stdio"),
		user: func(p Places) (files []clientFile) {
			for _, dir := range p.code() {
				files = append(files, clientFile{path: p.under(dir, "mcp.json"), dialect: vscode, write: true}, clientFile{path: p.under(dir, "settings.json"), dialect: vscodeSettings})
			}
			return files
		},
		project: []clientFile{{path: ".vscode/mcp.json", dialect: vscode, write: true}, {path: ".vscode/settings.json", dialect: vscodeSettings}},
		signs:   Places.code,
	},
	{
		Name: "windsurf", Title: "Windsurf", programs: []string{"windsurf"}, entry: plainEntry, off: OffDisabled,
		user:  userFile(windsurf, ".codeium", "windsurf", "mcp_config.json"),
		signs: atHome(".codeium", "windsurf"),
	},
	{
		Name: "zed", Title: "Zed", programs: []string{"zed", "zeditor"}, off: OffEnabled,
		user: func(p Places) []clientFile {
			return []clientFile{{path: p.under(p.zed(), "settings.json"), dialect: zed, write: true}}
		},
		project: []clientFile{{path: ".zed/settings.json", dialect: zed, write: true}},
		signs:   func(p Places) []string { return []string{p.zed()} },
		entry: func(_, command string, args []string) edit.Object {
			return append(edit.Object{{Key: "source", Value: "custom"}, {Key: "enabled", Value: true}}, plainEntry("", command, args)...)
		},
	},
	{
		Name: "cline", Title: "Cline", entry: plainEntry, off: OffDisabled,
		user: func(p Places) (files []clientFile) {
			for _, dir := range p.clineFolders() {
				files = append(files, clientFile{path: p.under(dir, "settings", "cline_mcp_settings.json"), dialect: cline, write: true})
			}
			return files
		},
		signs: Places.clineFolders,
	},
	{
		Name: "codex", Title: "Codex", programs: []string{"codex"}, entry: plainEntry, off: OffEnabled,
		user: func(p Places) []clientFile {
			return []clientFile{{path: p.under(p.variable("CODEX_HOME", p.under(p.Home, ".codex")), "config.toml"), dialect: codex, write: true}}
		},
		project: []clientFile{{path: ".codex/config.toml", dialect: codex, write: true}},
		signs: func(p Places) []string {
			return []string{p.variable("CODEX_HOME", p.under(p.Home, ".codex"))}
		},
	},
	{
		Name: "gemini", Title: "Gemini CLI", programs: []string{"gemini"}, entry: plainEntry, off: OffExcluded,
		user:    userFile(gemini, ".gemini", "settings.json"),
		project: []clientFile{{path: ".gemini/settings.json", dialect: gemini, write: true}},
		signs:   atHome(".gemini"),
	},
	{
		Name: "antigravity", Title: "Antigravity", programs: []string{"antigravity"}, entry: plainEntry, off: OffDisabled,
		user:  userFile(windsurf, ".gemini", "antigravity", "mcp_config.json"),
		signs: atHome(".gemini", "antigravity"),
	},
	{
		Name: "opencode", Title: "OpenCode", programs: []string{"opencode"}, off: OffEnabled,
		user: func(p Places) []clientFile {
			dir := p.under(p.xdg(), "opencode")
			return []clientFile{
				{path: p.under(dir, "opencode.json"), dialect: opencode, write: true},
				{path: p.under(dir, "opencode.jsonc"), dialect: opencode, write: true},
				{path: p.under(p.Home, ".opencode.json"), dialect: opencode},
			}
		},
		project: []clientFile{{path: "opencode.json", dialect: opencode, write: true}, {path: "opencode.jsonc", dialect: opencode, write: true}},
		signs:   func(p Places) []string { return []string{p.under(p.xdg(), "opencode")} },
		entry: func(_, command string, args []string) edit.Object {
			return edit.Object{{Key: "type", Value: "local"}, {Key: "command", Value: append([]string{command}, args...)}, {Key: "enabled", Value: true}}
		},
	},
	{
		Name: "goose", Title: "Goose", programs: []string{"goose"}, off: OffEnabled,
		user: func(p Places) []clientFile {
			return []clientFile{{path: p.under(p.goose(), "config.yaml"), dialect: goose, write: true}}
		},
		signs: func(p Places) []string { return []string{p.goose()} },
		entry: func(name, command string, args []string) edit.Object {
			return edit.Object{
				{Key: "name", Value: name}, {Key: "type", Value: "stdio"}, {Key: "cmd", Value: command}, {Key: "args", Value: args},
				{Key: "enabled", Value: true}, {Key: "timeout", Value: 300}, {Key: "envs", Value: edit.Object{}}, {Key: "env_keys", Value: []string{}},
			}
		},
	},
	{
		Name: "copilot", Title: "GitHub Copilot CLI", programs: []string{"copilot"},
		user:    userFile(copilot, ".copilot", "mcp-config.json"),
		project: []clientFile{{path: ".github/mcp.json", dialect: copilot, write: true}},
		signs:   atHome(".copilot"),
		entry:   stdioEntry("local", edit.Member{Key: "tools", Value: []string{"*"}}),
	},
	{
		Name: "kiro", Title: "Kiro", programs: []string{"kiro", "kiro-cli"}, entry: plainEntry, off: OffDisabled,
		user:    userFile(kiro, ".kiro", "settings", "mcp.json"),
		project: []clientFile{{path: ".kiro/settings/mcp.json", dialect: kiro, write: true}},
		signs:   atHome(".kiro"),
	},
	{
		Name: "crush", Title: "Crush", programs: []string{"crush"}, entry: stdioEntry("stdio"), off: OffDisabled,
		user: func(p Places) []clientFile {
			return []clientFile{{path: p.under(p.crush(), "crush.json"), dialect: crush, write: true}}
		},
		project: []clientFile{{path: ".crush.json", dialect: crush, write: true}, {path: "crush.json", dialect: crush, write: true}},
		signs:   func(p Places) []string { return []string{p.crush()} },
	},
	{
		Name: "lmstudio", Title: "LM Studio", programs: []string{"lms"}, entry: plainEntry,
		user: func(p Places) []clientFile {
			return []clientFile{
				{path: p.under(p.Home, ".lmstudio", "mcp.json"), dialect: lmStudio, write: true},
				{path: p.under(p.Home, ".cache", "lm-studio", "mcp.json"), dialect: lmStudio, write: true},
			}
		},
		signs: func(p Places) []string {
			return []string{p.under(p.Home, ".lmstudio"), p.under(p.Home, ".cache", "lm-studio")}
		},
	},
	{
		Name: "continue", Title: "Continue", programs: []string{"cn"},
		user:    userFile(continueDev, ".continue", "config.yaml"),
		project: []clientFile{{path: ".continue/mcpServers/sallyport.yaml", dialect: continueDev, write: true, folder: true}},
		signs:   atHome(".continue"),
		head:    "name: Local\nversion: 1.0.0\nschema: v1\n",
		entry: func(name, command string, args []string) edit.Object {
			return append(edit.Object{{Key: "name", Value: name}}, plainEntry(name, command, args)...)
		},
	},
}

func (p Places) zed() string {
	if p.OS == "windows" {
		return p.under(p.config(), "Zed")
	}
	return p.under(p.xdg(), "zed")
}

func (p Places) goose() string {
	if p.OS == "windows" {
		return p.under(p.config(), "Block", "goose", "config")
	}
	return p.under(p.xdg(), "goose")
}

func (p Places) crush() string {
	if p.OS == "windows" {
		return p.under(p.variable("LOCALAPPDATA", p.under(p.Home, "AppData", "Local")), "crush")
	}
	return p.under(p.xdg(), "crush")
}

func (p Places) clineFolders() (out []string) {
	for _, dir := range append(p.code(), p.under(p.config(), "Cursor", "User")) {
		out = append(out, p.under(dir, "globalStorage", "saoudrizwan.claude-dev"))
	}
	return out
}

// Clients returns all known clients.
func Clients() []*Client { return slices.Clone(table) }

// ClientNamed returns a client by its name.
func ClientNamed(name string) (*Client, bool) {
	for _, c := range table {
		if c.Name == name {
			return c, true
		}
	}
	return nil, false
}

// everyFile returns the client's files on all systems.
func (c *Client) everyFile() []clientFile {
	out := slices.Clone(c.project)
	for _, system := range []string{"linux", "darwin", "windows"} {
		out = append(out, c.user(Places{OS: system, Home: string(filepath.Separator)})...)
	}
	return out
}

// Present reports whether the client has been used on this machine, or can be:
// exists looks for a file or folder, and program for a name in the search path.
func (c *Client) Present(p Places, exists, program func(string) bool) bool {
	if slices.ContainsFunc(c.signs(p), func(path string) bool { return path != "" && exists(path) }) {
		return true
	}
	for _, f := range c.user(p) {
		if f.path != "" && exists(f.path) {
			return true
		}
	}
	return slices.ContainsFunc(c.programs, program)
}

// Target is the file of a client in which a server is written.
type Target struct {
	Client *Client
	File   string
	// Project is the folder that the file belongs to; empty: the user's own file.
	Project string
	Format  edit.Format

	dialect *dialect
}

// Target returns the file in which Sallyport is written: the user's, or the one
// of the folder p.Dir.
func (c *Client) Target(p Places, project bool, exists func(string) bool) (Target, bool) {
	files := c.user(p)
	if project {
		files = nil
		for _, f := range c.project {
			f.path = filepath.Join(p.Dir, filepath.FromSlash(f.path))
			files = append(files, f)
		}
	}
	files = slices.DeleteFunc(slices.Clone(files), func(f clientFile) bool { return !f.write || f.path == "" })
	if len(files) == 0 {
		return Target{}, false
	}
	best := files[0]
	for _, look := range []func(clientFile) bool{
		func(f clientFile) bool { return exists(f.path) },
		func(f clientFile) bool { return exists(filepath.Dir(f.path)) },
	} {
		if i := slices.IndexFunc(files, look); i >= 0 {
			best = files[i]
			break
		}
	}
	t := Target{Client: c, File: best.path, Format: best.dialect.format, dialect: best.dialect}
	if project {
		t.Project = p.Dir
	}
	return t, true
}

// Place returns where a server of that name is in the text of the file, as Load
// reads it, or where it would be written.
func (t Target) Place(text []byte, name string) edit.Place {
	place := func(servers []string) edit.Place {
		return edit.Place{Path: append(slices.Clone(servers), name), Named: t.dialect.named}
	}
	if len(t.dialect.paths) == 1 {
		return place(t.dialect.paths[0])
	}
	best := t.dialect.write
	for _, servers := range t.dialect.paths { // the first one counts
		have, err := edit.Get(t.Format, text, edit.At(servers...))
		group, ok := have.(map[string]any)
		if err != nil || !ok || isEntry(group) {
			continue
		}
		if entry, ok := group[name].(map[string]any); ok && isEntry(entry) {
			return place(servers)
		}
		if slices.Equal(servers, t.dialect.newer) {
			best = servers
		}
	}
	return place(best)
}

// isEntry tells an entry from an object of entries.
func isEntry(object map[string]any) bool {
	return slices.ContainsFunc(entryKeys, func(key string) bool {
		v, ok := object[key]
		_, group := v.(map[string]any)
		return ok && !group
	})
}

// newer reports whether a place belongs to a newer form of the file.
func (t Target) newer(at edit.Place) bool {
	return t.dialect.newer != nil && slices.Equal(at.Path[:len(at.Path)-1], t.dialect.newer)
}

// Entry returns a program as this client writes it at a place.
func (t Target) Entry(at edit.Place, command string, args []string) edit.Object {
	entry := t.Client.entry(at.Path[len(at.Path)-1], command, args)
	if t.newer(at) { // OpenCode's own code mode would hide the tool
		entry = slices.DeleteFunc(entry, func(m edit.Member) bool { return m.Key == "enabled" })
		entry = append(entry, edit.Member{Key: "codemode", Value: false})
	}
	return entry
}

// Head returns what a new file starts with.
func (t Target) Head() string { return t.Client.head }

// Source is the file as a source of definitions.
func (t Target) Source() Source {
	return Source{Name: t.Client.Name, File: t.File, Optional: true, Project: t.Project, dialect: t.dialect}
}

// SwitchOff changes the text of the file so that the client does not start a
// server.
func (t Target) SwitchOff(text []byte, name string) ([]byte, error) {
	at := t.Place(text, name)
	off := t.Client.off
	if t.newer(at) {
		off = OffDisabled
	}
	switch off {
	case OffDisabled:
		return edit.Set(t.Format, text, inside(at, "disabled"), true)
	case OffEnabled:
		return edit.Set(t.Format, text, inside(at, "enabled"), false)
	case OffExcluded:
		return t.listed(text, edit.At("mcp", "excluded"), name, true)
	}
	return edit.Remove(t.Format, text, at)
}

func inside(at edit.Place, key string) edit.Place {
	return edit.Place{Path: append(slices.Clone(at.Path), key), Named: at.Named}
}

// SwitchOn changes the text of the file so that the client starts a server that
// is in it, whatever switched it off there.
func (t Target) SwitchOn(text []byte, name string) ([]byte, error) {
	at := t.Place(text, name)
	have, err := edit.Get(t.Format, text, at)
	entry, _ := have.(map[string]any)
	for _, s := range []struct {
		key string
		on  bool
	}{{"disabled", false}, {"enabled", true}} {
		if value, ok := entry[s.key]; ok && value != s.on && err == nil {
			text, err = edit.Set(t.Format, text, inside(at, s.key), s.on)
		}
	}
	if t.dialect != gemini {
		return text, err
	}
	for _, list := range []struct {
		at   edit.Place
		with bool
	}{
		{edit.At("mcp", "excluded"), false}, {edit.At("excludeMCPServers"), false},
		{edit.At("mcp", "allowed"), true}, {edit.At("allowMCPServers"), true},
	} {
		if have, getErr := edit.Get(t.Format, text, list.at); err == nil && getErr == nil && have != nil {
			text, err = t.listed(text, list.at, name, list.with)
		}
	}
	return text, err
}

// listed returns the text with or without a name in a list.
func (t Target) listed(text []byte, at edit.Place, name string, with bool) ([]byte, error) {
	have, err := edit.Get(t.Format, text, at)
	if err != nil {
		return nil, err
	}
	list, _ := have.([]any)
	if slices.Contains(list, any(name)) == with {
		return text, nil
	}
	if with {
		list = append(slices.Clone(list), name)
	} else {
		list = slices.DeleteFunc(slices.Clone(list), func(v any) bool { return v == name })
	}
	return edit.Set(t.Format, text, at, list)
}

// Removes reports whether SwitchOff removes the entry: the client has no other
// way.
func (t Target) Removes() bool { return t.Client.off == OffRemoved }
