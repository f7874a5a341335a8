package definitions

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

	used map[string]string // variables that were expanded
	// given has the variables whose values are of the project, not of the user.
	given map[string]string
	miss  map[string]struct{} // variables that are not set
	// translate means that variables are rewritten in our own notation instead of
	// expanded.
	translate bool
	// literal means that something was left as it is that our own format would
	// expand.
	literal bool
	// refers means that something is left for Resolve.
	refers bool
	uses   []string // what Resolve will read

	line     int // of the value that is being expanded
	troubles []trouble
	grown    int  // bytes that the values of variables added
	full     bool // that was too much
}

// input is a value that VS Code asks the user for.
type input struct{ description, fallback string }

func newExpander(env Environment, home string, s syntax) *expander {
	return &expander{syntax: s, env: env, home: home, used: make(map[string]string), miss: make(map[string]struct{}), asks: make(map[string]bool)}
}

// Bounds of the variables of one entry.
const (
	maxNested   = 50
	maxExpanded = 1 << 20
	maxTroubles = 10
	maxPath     = 4 << 10
)

// variables expands the notations that the syntax knows. Expanded values are
// not expanded again.
func (e *expander) variables(s string) string {
	if !strings.ContainsAny(s, "${") {
		return s
	}
	var b strings.Builder
	e.expand(&b, s, e.ends(s), 0, len(s), 0)
	return b.String()
}

// ends returns for each ${ in s where its } is, and 0 if there is none.
func (e *expander) ends(s string) []int {
	var ends, open []int
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "${"):
			if ends == nil {
				ends = make([]int, len(s))
			}
			open = append(open, i)
			i++
		case s[i] == '}' && len(open) > 0:
			ends[open[len(open)-1]] = i
			open = open[:len(open)-1]
		}
	}
	// What is written like a variable was meant as one.
	if len(open) > 0 && (e.braces || e.editor) {
		if name, _, _ := strings.Cut(s[open[0]+2:], ":"); isName(name) {
			e.trouble(true, "${%s is not closed with }", clip(name))
		}
	}
	return ends
}

// expand appends s[from:to] to b. ends has where the variables of s end.
func (e *expander) expand(b *strings.Builder, s string, ends []int, from, to, depth int) {
	for i := from; i < to && !e.full; {
		rest := s[i:to]
		text, n := "", 0
		switch {
		case strings.HasPrefix(rest, "${"):
			if end := ends[i]; end > i {
				if e.withDefault(b, s, ends, i+2, end, depth) {
					i = end + 1
					continue
				}
				if value, ok := e.braced(s[i+2 : end]); ok {
					text, n = value, end+1-i
				}
			}
		case rest[0] == '$' && e.dollar:
			end := 1
			for end < len(rest) && (isNameByte(rest[end]) || end > 1 && rest[end] >= '0' && rest[end] <= '9') {
				end++
			}
			if name := rest[1:end]; name != "" {
				text, n = e.lookup(name, "$"+name), 1+len(name)
			}
		case rest[0] == '{' && e.opencode && (strings.HasPrefix(rest, "{env:") || strings.HasPrefix(rest, "{file:")):
			if end := strings.IndexByte(rest[:min(len(rest), maxPath)], '}'); end > 0 {
				if value, ok := e.curly(rest[1:end]); ok {
					text, n = value, end+1
				}
			}
		}
		if n == 0 {
			e.literal = e.literal || e.translate && ours(rest)
			text, n = rest[:1], 1
		}
		e.write(b, text, n)
		i += n
	}
}

// write appends the text that n bytes stand for, within bounds.
func (e *expander) write(b *strings.Builder, text string, n int) {
	if e.grown += max(0, len(text)-n); e.grown > maxExpanded {
		e.full = true
		e.trouble(false, "its variables expand to more than %d bytes", maxExpanded)
		return
	}
	b.WriteString(text)
}

// withDefault appends what ${s[from:to]} stands for if it is a variable with a
// default, which may have variables, too. It reports false if it is not.
func (e *expander) withDefault(b *strings.Builder, s string, ends []int, from, to, depth int) bool {
	name, _, ok := strings.Cut(s[from:to], ":-")
	if !ok || !e.braces || !e.isVariable(name) {
		return false
	}
	fallback := from + len(name) + len(":-")
	if depth == maxNested {
		e.trouble(false, "its variables are nested more than %d levels deep", maxNested)
		return true
	}
	if e.translate {
		b.WriteString("${" + name + ":-")
		e.expand(b, s, ends, fallback, to, depth+1)
		b.WriteByte('}')
		return true
	}
	if value, set := e.env(name); set && value != "" {
		e.used[name] = value
		e.write(b, value, to-from)
		return true
	}
	e.expand(b, s, ends, fallback, to, depth+1)
	return true
}

// isVariable reports whether a name can be one of a variable: one that is spelt
// differently, such as ProgramFiles(x86), has to be set.
func (e *expander) isVariable(name string) bool {
	if isName(name) || e.translate || strings.ContainsAny(name, "${} ") || name == "" {
		return isName(name)
	}
	_, set := e.env(name)
	return set
}

// trouble notes what is wrong with a value; a warning leaves the entry usable.
func (e *expander) trouble(warning bool, format string, args ...any) {
	t := trouble{e.line, warning, fmt.Sprintf(format, args...)}
	if len(e.troubles) < maxTroubles && !slices.Contains(e.troubles, t) {
		e.troubles = append(e.troubles, t)
	}
}

type trouble struct {
	line    int
	warning bool
	reason  string
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
		case e.editor && kind == "env" && e.isVariable(name):
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
	if !e.isVariable(inner) {
		return "", false
	}
	return e.lookup(inner, "${"+inner+"}"), true
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
		if c := s[i]; !isNameByte(c) && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// isNameByte reports whether a name can begin with c.
func isNameByte(c byte) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

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
