package definitions

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/edit"
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
	names := []string{NameMCPs, "mcp"}
	for _, c := range table {
		names = append(names, c.Name)
	}
	return append(names, NameProject)
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
	folder := func(name, path string) {
		if path != "" {
			out = append(out, Source{Name: name, Dir: path})
		}
	}
	folder(NameMCPs, p.MCPs())
	folder("mcp", p.under(p.xdg(), "mcp", "servers"))
	for _, c := range table {
		for _, f := range c.user(p) {
			if f.path != "" {
				out = append(out, Source{Name: c.Name, File: f.path, Optional: true, dialect: f.dialect})
			}
		}
	}
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
	for _, c := range table {
		for _, f := range c.project {
			path := filepath.Join(p.Dir, filepath.FromSlash(f.path))
			source := Source{Name: NameProject, File: path, Optional: true, Project: p.Dir, dialect: f.dialect}
			if f.folder {
				source.File, source.Dir = "", filepath.Dir(path)
			}
			out = append(out, source)
		}
	}
	return out
}

// reads reports whether a file of the source's folder is read, by its name.
func (s *Source) reads(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	if s.dialect != nil && s.dialect.format == edit.YAML {
		return ext == ".yaml" || ext == ".yml"
	}
	return ext == ".json"
}
