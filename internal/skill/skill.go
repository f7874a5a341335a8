// Package skill puts the manual where clients look for skills, and removes it
// from there. A file that the user changed is neither replaced nor removed
// without force, and then a copy stays. Nothing is written outside a project's
// folder, even if a symbolic link leads there. In the home directory a link is
// followed if it is the user's and leads to a directory that only they can change.
package skill

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/manual"
)

// client is where a client looks for skills: below the home directory, or the
// directory that a variable names instead of the first element, and below a
// project. Codex and Gemini CLI list the skills that they find there.
type client struct{ name, variable, user, project string }

var clients = []client{
	{"claude-code", "CLAUDE_CONFIG_DIR", ".claude/skills", ".claude/skills"},
	{"codex", "CODEX_HOME", ".codex/skills", ".agents/skills"},
	{"copilot", "", ".copilot/skills", ".github/skills"},
	{"cursor", "", ".cursor/skills", ".cursor/skills"},
	{"gemini", "", ".gemini/skills", ".gemini/skills"},
}

// otherNames are other names of the same clients.
var otherNames = map[string]string{"gemini-cli": "gemini", "github-copilot": "copilot", "vscode": "copilot"}

// Clients returns the names of all clients that read skills.
func Clients() []string {
	var names []string
	for _, c := range clients {
		names = append(names, c.name)
	}
	return names
}

// Folders are where to look for clients. All paths are absolute.
type Folders struct {
	Home    string
	Project string // empty: skills of the user, for all projects
	Env     func(name string) (value string, ok bool)
}

// Place is where one client looks for the skill.
type Place struct {
	Client string
	base   string // contains everything that is read or written
	below  string // the skill's folder, below base, with slashes
	linked bool   // base is a link that the user made
}

// Path returns the path of the skill's file.
func (p Place) Path() string { return filepath.Join(p.base, filepath.FromSlash(p.below), file) }

// Places returns the places of the named clients. Without names, it returns those
// of the clients that this user has, which may be none.
func (f Folders) Places(names []string) ([]Place, error) {
	var wanted []string
	for _, name := range names {
		if other, ok := otherNames[name]; ok {
			name = other
		}
		if !slices.Contains(Clients(), name) {
			return nil, fmt.Errorf("no client %q that reads skills; there are: %s", name, strings.Join(Clients(), ", "))
		}
		wanted = append(wanted, name)
	}
	var places []Place
	for _, c := range clients {
		p := f.place(c)
		if slices.Contains(wanted, c.name) || len(names) == 0 && f.has(c) {
			places = append(places, p)
		}
	}
	return places, nil
}

// place returns where a client looks for the skill.
func (f Folders) place(c client) Place {
	if f.Project != "" {
		return Place{Client: c.name, base: f.Project, below: path.Join(c.project, manual.Name)}
	}
	p := Place{Client: c.name, base: f.Home, below: path.Join(c.user, manual.Name)}
	if dir, ok := f.named(c); ok {
		_, below, _ := strings.Cut(c.user, "/")
		p.base, p.below = dir, path.Join(below, manual.Name)
	}
	// Dotfiles are often links to where a user keeps them. The last one counts.
	at, rest := p.base, strings.Split(p.below, "/")
	for i, name := range rest[:len(rest)-1] {
		at = filepath.Join(at, name)
		if info, err := os.Lstat(at); err == nil && info.Mode()&os.ModeSymlink != 0 {
			p.base, p.below, p.linked = at, path.Join(rest[i+1:]...), true
		}
	}
	return p
}

// named returns the client's own directory if a variable names it.
func (f Folders) named(c client) (string, bool) {
	if c.variable == "" || f.Env == nil {
		return "", false
	}
	dir, ok := f.Env(c.variable)
	return dir, ok && filepath.IsAbs(dir)
}

// has reports whether the client's own directory exists.
func (f Folders) has(c client) bool {
	dir, ok := f.named(c)
	if !ok {
		own, _, _ := strings.Cut(c.user, "/")
		dir = filepath.Join(f.Home, own)
	}
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}
