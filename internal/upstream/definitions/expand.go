package definitions

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Environment looks a variable up; ok is false when it is not set.
type Environment func(name string) (value string, ok bool)

// syntax is the set of variable notations that an entry knows. Others stay as
// they are written.
type syntax struct {
	braces     bool // ${NAME} and ${NAME:-default}
	dollar     bool // $NAME
	editor     bool // ${env:NAME}, ${userHome}, ${workspaceFolder} and so on
	inputs     bool // ${input:ID}
	opencode   bool // {env:NAME} and {file:PATH}
	tilde      bool // a leading ~
	references bool // ${file:PATH} and ${keyring:NAME}
}

// expander replaces variables in the values of one entry.
type expander struct {
	syntax
	env    Environment
	home   string
	folder string           // the project's folder, for editors
	base   string           // where relative paths of secrets start
	asked  map[string]input // the file's inputs, for VS Code
	asks   map[string]bool  // those that the entry uses

	used map[string]string   // variables that were expanded
	miss map[string]struct{} // variables that are not set
	// translate means that variables are rewritten in our own notation instead of
	// expanded.
	translate bool
	// literal means that something was left as it is that our own format would
	// expand.
	literal bool
	// refers means that something is left for Resolve.
	refers bool
	uses   []string // what Resolve will read
}

// input is a value that VS Code asks the user for.
type input struct{ description, fallback string }

func newExpander(env Environment, home string, s syntax) *expander {
	return &expander{syntax: s, env: env, home: home, used: make(map[string]string), miss: make(map[string]struct{}), asks: make(map[string]bool)}
}

// variables expands the notations that the syntax knows. Expanded values are
// not expanded again.
func (e *expander) variables(s string) string {
	if !strings.ContainsAny(s, "${") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		rest := s[i:]
		text, n := "", 0
		switch {
		case strings.HasPrefix(rest, "${"):
			if end := strings.IndexByte(rest, '}'); end > 0 {
				if value, ok := e.braced(rest[2:end]); ok {
					text, n = value, end+1
				}
			}
		case rest[0] == '$' && e.dollar:
			name := rest[1:]
			for j := range len(name) {
				if !isName(name[:j+1]) {
					name = name[:j]
					break
				}
			}
			if name != "" {
				text, n = e.lookup(name, "$"+name), 1+len(name)
			}
		case rest[0] == '{' && e.opencode:
			if end := strings.IndexByte(rest, '}'); end > 0 {
				if value, ok := e.curly(rest[1:end]); ok {
					text, n = value, end+1
				}
			}
		}
		if n == 0 {
			e.literal = e.literal || e.translate && ours(rest)
			text, n = rest[:1], 1
		}
		b.WriteString(text)
		i += n
	}
	return b.String()
}

// ours reports whether s begins with something that our own format would
// expand.
func ours(s string) bool {
	inner, ok := strings.CutPrefix(s, "${")
	inner, _, closed := strings.Cut(inner, "}")
	name, _, _ := strings.Cut(inner, ":-")
	return ok && closed && (isName(name) || strings.HasPrefix(inner, "file:") || strings.HasPrefix(inner, "keyring:"))
}

// lookup returns a variable's value, or what was written if it is not set.
func (e *expander) lookup(name, written string) string {
	if e.translate {
		return "${" + name + "}"
	}
	value, set := e.env(name)
	if !set {
		e.miss[name] = struct{}{}
		return written
	}
	e.used[name] = value
	return value
}

// orNothing returns a variable's value, or an empty string if it is not set, as
// editors do.
func (e *expander) orNothing(name string) string {
	if e.translate {
		return "${" + name + ":-}"
	}
	value, set := e.env(name)
	if !set {
		e.miss[name] = struct{}{}
	}
	e.used[name] = value
	return value
}

// braced returns what ${inner} stands for.
func (e *expander) braced(inner string) (string, bool) {
	if kind, name, ok := strings.Cut(inner, ":"); ok && !strings.HasPrefix(name, "-") {
		switch {
		case e.editor && kind == "env" && isName(name):
			return e.orNothing(name), true
		case e.inputs && kind == "input" && name != "":
			return e.input(name), true
		case e.references && (kind == "file" || kind == "keyring") && name != "":
			return e.reference(kind, name), true
		}
		return "", false
	}
	if e.editor {
		switch inner {
		case "userHome":
			return e.home, true
		case "workspaceFolder", "workspaceRoot":
			return e.folder, e.folder != ""
		case "workspaceFolderBasename":
			return filepath.Base(e.folder), e.folder != ""
		case "pathSeparator", "/":
			return string(filepath.Separator), true
		}
	}
	if !e.braces {
		return "", false
	}
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if !isName(name) {
		return "", false
	}
	if hasFallback && e.translate {
		return "${" + inner + "}", true
	}
	if value, set := e.env(name); hasFallback && (!set || value == "") {
		return fallback, true
	}
	return e.lookup(name, "${"+inner+"}"), true
}

// curly returns what OpenCode's {inner} stands for.
func (e *expander) curly(inner string) (string, bool) {
	if name, ok := strings.CutPrefix(inner, "env:"); ok && isName(name) {
		return e.orNothing(name), true
	}
	if path, ok := strings.CutPrefix(inner, "file:"); ok && path != "" {
		return e.reference("file", path), true
	}
	return "", false
}

// reference leaves a secret for Resolve.
func (e *expander) reference(kind, name string) string {
	if kind == "file" {
		if e.home != "" && (name == "~" || strings.HasPrefix(name, "~/")) {
			name = e.home + name[1:]
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(e.base, name)
		}
	}
	e.refers = true
	e.uses = append(e.uses, kind+":"+name)
	return "${" + kind + ":" + name + "}"
}

// InputVariable returns the environment variable that answers the input with
// that id, which VS Code would ask the user for: "input" and the id, spelt as a
// variable.
func InputVariable(id string) string {
	return "INPUT_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, id)
}

// input returns a value that VS Code would ask for: from the environment, else
// the input's own default, else from the keyring when the server is started. If
// that fails, its error says what is missing.
func (e *expander) input(id string) string {
	name := InputVariable(id)
	e.asks[id] = true
	if e.translate {
		if in := e.asked[id]; in.fallback != "" && !strings.ContainsAny(in.fallback, "{}") {
			return "${" + name + ":-" + in.fallback + "}"
		}
		return e.reference("keyring", "input/"+id)
	}
	if value, ok := e.env(name); ok {
		e.used[name] = value
		return value
	}
	if in := e.asked[id]; in.fallback != "" {
		return in.fallback
	}
	return e.reference("keyring", "input/"+id)
}

// path expands variables and a leading ~ for the home directory.
func (e *expander) path(s string) string {
	if e.tilde && e.home != "" && (s == "~" || strings.HasPrefix(s, "~/") || runtime.GOOS == "windows" && strings.HasPrefix(s, `~\`)) {
		return e.home + e.variables(s[1:])
	}
	return e.variables(s)
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// workDir makes dir absolute, and reports whether that directory exists.
func workDir(dir, base string) (string, bool) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(base, dir)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}
