package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"github.com/sallyport/sallyport/internal/invisible"
)

// pythonKeywords in lower case cannot be the name of a function.
var pythonKeywords = map[string]bool{
	"and": true, "as": true, "assert": true, "async": true, "await": true, "break": true, "class": true,
	"continue": true, "def": true, "del": true, "elif": true, "else": true, "except": true, "finally": true,
	"for": true, "from": true, "global": true, "if": true, "import": true, "in": true, "is": true,
	"lambda": true, "nonlocal": true, "not": true, "or": true, "pass": true, "raise": true, "return": true,
	"try": true, "while": true, "with": true, "yield": true,
}

// ServerAlias returns the Python identifier of a server: mcp_<alias>. It depends
// on the name alone: no other server changes it, or takes it over. Several names
// may have the same.
func ServerAlias(name string) string {
	alias := identifier(name)
	if alias == "" {
		return "server"
	}
	return alias
}

// Alias is like ServerAlias, for the Python name of a tool's function.
func Alias(name string) string {
	alias := identifier(name)
	switch {
	case alias == "":
		return "tool"
	case pythonKeywords[alias]:
		return alias + "_"
	}
	return alias
}

// ServerCalls returns how code writes each of the servers that it may use:
// mcp_<alias> or, where that means another server or several, mcp_servers["name"].
func ServerCalls(names []string) map[string]string {
	meant := meanings(names, func(i int) string { return ServerAlias(names[i]) })
	calls := make(map[string]string, len(names))
	for _, name := range names {
		if alias := ServerAlias(name); means(meant, alias, name) && alias != "servers" { // mcp_servers is all of them
			calls[name] = "mcp_" + alias
		} else {
			calls[name] = "mcp_servers[" + PythonString(name) + "]"
		}
	}
	return calls
}

// Calls returns what follows the server where code calls each of its tools:
// .<alias> or, where that means another tool, one that is denied, several, or
// something of Python, ["name"].
func Calls(tools []Tool, denied []string) map[string]string {
	names := make([]string, len(tools))
	for i := range tools {
		names[i] = tools[i].Name
	}
	meant := meanings(names, func(i int) string { return Alias(names[i]) })
	for _, name := range denied {
		meant[name] = []string{name}
	}
	calls := make(map[string]string, len(names))
	for _, name := range names {
		alias := Alias(name)
		if means(meant, alias, name) && alias != "list_tools" && !(strings.HasPrefix(alias, "__") && strings.HasSuffix(alias, "__")) {
			calls[name] = "." + alias
		} else {
			calls[name] = "[" + PythonString(name) + "]"
		}
	}
	return calls
}

// meanings returns what identifiers mean, as the sandbox has it (proxy.py): a
// name means what has it, and only if nothing has it is it an alias, or what
// Python makes of a name in source code (NFKC). One that fits several means
// none of them, whatever the order of names.
func meanings(names []string, alias func(i int) string) map[string][]string {
	meant := make(map[string][]string, 2*len(names))
	for i, name := range names {
		alias, normal := alias(i), norm.NFKC.String(name)
		meant[alias] = append(meant[alias], name)
		if normal != alias {
			meant[normal] = append(meant[normal], name)
		}
	}
	for _, name := range names {
		meant[name] = []string{name}
	}
	return meant
}

// means reports whether an identifier means what has the name, and nothing else.
func means(meant map[string][]string, identifier, name string) bool {
	return len(meant[identifier]) == 1 && meant[identifier][0] == name
}

// Find returns the tool of that name or, if there is none, the only one with
// that alias, or that is printed so; nil if there is none either. If several may
// be meant, the error names them.
func Find(tools []Tool, name string) (*Tool, error) {
	names := make([]string, len(tools))
	for i := range tools {
		names[i] = tools[i].Name
	}
	meant := meanings(names, func(i int) string { return tools[i].Alias })
	found := meaning(meant, name)
	if found == nil {
		found = meaning(meant, ToolName(name))
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &tools[slices.Index(names, found[0])], nil
	}
	choices := make([]string, min(len(found), 20))
	for i := range choices {
		choices[i] = PythonString(found[i])
	}
	return nil, fmt.Errorf("several tools may be meant by %s: write one of %s", PythonString(name), strings.Join(choices, ", "))
}

// PythonString quotes a name. JSON's form is Python's, too.
func PythonString(s string) string {
	if !strings.ContainsAny(s, `'"\`) && len(invisible.In(s)) == 0 {
		return "'" + s + "'"
	}
	quoted, err := json.Marshal(s)
	if err != nil { // cannot happen: a string
		return "''"
	}
	return string(quoted)
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
