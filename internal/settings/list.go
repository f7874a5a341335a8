package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxParts bounds a list.
const maxParts = 256

// words is a value of several strings.
type words struct {
	field      *[]string
	read       func(string, place) (string, error)
	name, span string
}

func list(field *[]string, ok func(string) bool, what string) *words {
	return &words{field: field, name: "list", span: what,
		read: func(s string, _ place) (string, error) {
			if !ok(s) {
				return "", fmt.Errorf("%s: not among %s", quote(s), what)
			}
			return s, nil
		}}
}

func files(field *[]string) *words {
	return &words{field: field, name: "list of paths",
		read: func(s string, at place) (string, error) {
			p, err := at.existing(s)
			if err != nil {
				return "", fmt.Errorf("%s: %w", quote(s), err)
			}
			return p, nil
		}}
}

// set splits text at commas and reads the parts.
func (v *words) set(text string, at place) error {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return v.setList(parts, at)
}

func (v *words) setList(parts []string, at place) error {
	if len(parts) > maxParts {
		return fmt.Errorf("it has more than %d parts", maxParts)
	}
	var got []string
	for _, p := range parts {
		if p == "" {
			return errors.New("one of its parts is empty")
		}
		part, err := v.read(p, at)
		if err != nil {
			return err
		}
		if !slices.Contains(got, part) {
			got = append(got, part)
		}
	}
	*v.field = got
	return nil
}

func (v *words) text() string { return strings.Join(*v.field, ",") }

func (v *words) data() any {
	if *v.field == nil {
		return []string{}
	}
	return *v.field
}

func (v *words) takes() form    { return asList }
func (v *words) kind() string   { return v.name }
func (v *words) bounds() string { return v.span }

// isServerPattern reports whether s is the name of a server, possibly with
// asterisks.
func isServerPattern(s string) bool {
	return s != "" && len(s) <= 256 && isPrintable(s) == nil
}

// isVariablePattern reports whether s is the name of an environment variable,
// possibly with an asterisk at the end. An asterisk alone would give servers
// every key of the environment.
func isVariablePattern(s string) bool {
	s = strings.TrimSuffix(s, "*")
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 256
}

// ServerSources returns the places where servers are looked for, in order of
// precedence.
func ServerSources() []string {
	return []string{
		"mcps", "mcp", "claude-desktop", "claude-code", "cursor", "vscode", "windsurf", "zed", "cline",
		"codex", "gemini", "antigravity", "opencode", "goose", "copilot", "kiro", "crush", "lmstudio", "continue", "project",
	}
}

func isSource(s string) bool { return s == "*" || slices.Contains(ServerSources(), s) }

// isRequestPattern reports whether s is a pattern for a command line or a URL.
// An asterisk alone, or one for a whole host, would let code start or reach
// anything.
func isRequestPattern(s string) bool {
	words := strings.Fields(s)
	if len(words) == 0 || len(s) > 4096 || isPrintable(s) != nil {
		return false
	}
	host := words[0]
	if _, after, ok := strings.Cut(host, "://"); ok {
		host, _, _ = strings.Cut(after, "/")
	}
	return strings.Trim(host, "*.") != ""
}

// isModule reports whether s is the name of a Python module, possibly inside
// packages.
func isModule(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if strings.Contains(part, "*") || !isVariablePattern(part) {
			return false
		}
	}
	return len(s) <= 256
}
