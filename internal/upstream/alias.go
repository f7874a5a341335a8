package upstream

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// pythonKeywords in lower case cannot be the name of a function.
var pythonKeywords = map[string]bool{
	"and": true, "as": true, "assert": true, "async": true, "await": true, "break": true, "class": true,
	"continue": true, "def": true, "del": true, "elif": true, "else": true, "except": true, "finally": true,
	"for": true, "from": true, "global": true, "if": true, "import": true, "in": true, "is": true,
	"lambda": true, "nonlocal": true, "not": true, "or": true, "pass": true, "raise": true, "return": true,
	"try": true, "while": true, "with": true, "yield": true,
}

// ServerAlias returns the Python identifier of a server: mcp_<alias>. It does
// not look at other servers; ServerAliases does.
func ServerAlias(name string) string {
	alias := identifier(name)
	if alias == "" {
		return "server"
	}
	return alias
}

// ToolAlias returns the Python name of a tool's function. It does not look at
// other tools; ToolAliases does.
func ToolAlias(name string) string {
	alias := identifier(name)
	switch {
	case alias == "":
		return "tool"
	case pythonKeywords[alias]:
		return alias + "_"
	}
	return alias
}

// ServerAliases returns the alias of each server. If several would be equal,
// the later ones get _2, _3 and so on. The user's own servers come first, then
// those of a project, then those that code asked for, and those that are only
// offered come last: existing code keeps reaching the servers that it did.
func ServerAliases(defs []Definition) []string { return serverAliases(defs, map[string]string{}) }

// serverAliases is ServerAliases, except that a name keeps an alias that it
// already has.
func serverAliases(defs []Definition, known map[string]string) []string {
	out := make([]string, len(defs))
	taken := make(map[string]bool, len(defs))
	var fresh []int
	for i := range defs {
		if alias, ok := known[defs[i].Name]; ok {
			out[i] = alias
			taken[alias] = true
		} else {
			fresh = append(fresh, i)
		}
	}
	slices.SortStableFunc(fresh, func(a, b int) int { return remoteness(&defs[a]) - remoteness(&defs[b]) })
	names := make([]string, len(fresh))
	for i, at := range fresh {
		names[i] = defs[at].Name
	}
	for i, alias := range distinctFrom(names, ServerAlias, taken) {
		out[fresh[i]] = alias
	}
	return out
}

// remoteness ranks definitions: the user's own have the lowest number.
func remoteness(d *Definition) int {
	switch {
	case d.Offer != "":
		return 3
	case d.Source == definitions.NameRequested:
		return 2
	case d.Source == definitions.NameProject:
		return 1
	}
	return 0
}

// ToolAliases is like ServerAliases, for the tools of one server in their
// order.
func ToolAliases(names []string) []string { return distinct(names, ToolAlias) }

func distinct(names []string, alias func(string) string) []string {
	return distinctFrom(names, alias, make(map[string]bool, len(names)))
}

// distinctFrom is distinct with some aliases already taken.
func distinctFrom(names []string, alias func(string) string, taken map[string]bool) []string {
	out := make([]string, len(names))
	// next saves a million look-ups for a thousand tools of the same name.
	next := make(map[string]int)
	for i, name := range names {
		base := alias(name)
		candidate := base
		if taken[base] {
			n := max(next[base], 2)
			for ; ; n++ {
				if candidate = base + "_" + strconv.Itoa(n); !taken[candidate] {
					break
				}
			}
			next[base] = n + 1
		}
		taken[candidate] = true
		out[i] = candidate
	}
	return out
}

// identifier converts a name to lower case, turns each run of anything but
// ASCII letters, digits and underscores into one underscore, and puts one
// before a leading digit.
func identifier(name string) string {
	var b strings.Builder
	run := false
	// Python converts İ to an i and a combining dot, Go to an i alone.
	for _, r := range strings.ToLower(strings.ReplaceAll(name, "İ", "i̇")) {
		if r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			if b.Len() == 0 && r >= '0' && r <= '9' {
				b.WriteByte('_')
			}
			b.WriteRune(r)
			run = false
			continue
		}
		if !run {
			b.WriteByte('_')
		}
		run = true
	}
	return b.String()
}
