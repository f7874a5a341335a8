package definitions

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Environment looks a variable up; ok is false when it is not set.
type Environment func(name string) (value string, ok bool)

// expander replaces variables in the values of one entry.
type expander struct {
	env  Environment
	home string
	used map[string]string   // variables that were put in
	miss map[string]struct{} // variables that are not set
}

func newExpander(env Environment, home string) *expander {
	return &expander{env: env, home: home, used: make(map[string]string), miss: make(map[string]struct{})}
}

// variables replaces ${NAME} and ${NAME:-default}. What is put in is not
// looked at again.
func (e *expander) variables(s string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		inner, after, ok := strings.Cut(rest, "}")
		if !ok {
			b.WriteString("${" + rest)
			return b.String()
		}
		name, fallback, hasFallback := strings.Cut(inner, ":-")
		if !isName(name) {
			b.WriteString("${")
			s = rest
			continue
		}
		value, set := e.env(name)
		switch {
		case set && (value != "" || !hasFallback):
			e.used[name] = value
			b.WriteString(value)
		case hasFallback:
			b.WriteString(fallback)
		default:
			e.miss[name] = struct{}{}
			b.WriteString("${" + inner + "}")
		}
		s = after
	}
}

// path is variables with a leading ~ for the home directory.
func (e *expander) path(s string) string {
	if e.home != "" && (s == "~" || strings.HasPrefix(s, "~/") || runtime.GOOS == "windows" && strings.HasPrefix(s, `~\`)) {
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

// workDir makes dir absolute, and reports whether there is such a directory.
func workDir(dir, file string) (string, bool) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(file), dir)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}
