package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// ReadServer returns the server that a user means: by its name or, as this
// program prints servers, mcp_<alias> or mcp_servers["name"]. It returns "" if
// there is none, and an error if there are several.
func ReadServer(servers []string, text string) (string, error) {
	text = strings.TrimSpace(text)
	if slices.Contains(servers, text) {
		return text, nil
	}
	server, _, err := read(servers, text, false)
	return server, err
}

// ReadTool returns the server and the tool that a user means, as this program
// prints them and code calls them: server.tool, "server tool", mcp_<alias>.tool,
// mcp_servers["name"]["tool"], with await or the arguments of a call. The tool is
// what [Find] takes. ReadTool returns "" if the text names no server, or nothing
// after it, and an error if there are several ways to read it.
func ReadTool(servers []string, text string) (server, tool string, err error) {
	return read(servers, strings.TrimSpace(text), true)
}

// ToolName returns the tool that is meant by what follows a server, as this
// program prints it: .tool, ["tool"] or tool(arguments). Any other text is a name.
func ToolName(text string) string {
	text = strings.TrimSpace(text)
	if name, rest, ok := index(text); ok && (rest == "" || isCall(rest)) {
		return name
	}
	text = strings.TrimPrefix(text, ".")
	if i := strings.IndexByte(text, '('); i > 0 {
		return strings.TrimSpace(text[:i])
	}
	return text
}

// read reads a server and, if one is wanted, a tool.
func read(servers []string, text string, wantTool bool) (server, tool string, err error) {
	if after, ok := strings.CutPrefix(text, "await "); ok {
		text = strings.TrimSpace(after)
	}
	meant := meanings(servers, func(i int) string { return ServerAlias(servers[i]) })
	var found [][2]string
	add := func(names []string, rest string) {
		name := ""
		if rest != "" && !isCall(rest) {
			name = ToolName(rest)
		}
		if (name != "") != wantTool || rest != "" && name == "" {
			return
		}
		for _, server := range names {
			if one := [2]string{server, name}; !slices.Contains(found, one) {
				found = append(found, one)
			}
		}
	}
	if after, ok := strings.CutPrefix(text, "mcp_servers"); ok {
		if name, rest, ok := index(after); ok {
			add(meaning(meant, name), rest)
		}
	}
	for end := range len(text) + 1 {
		if end == 0 || end < len(text) && !strings.ContainsRune(". [", rune(text[end])) {
			continue
		}
		add(meaning(meant, text[:end]), text[end:])
		if alias, ok := strings.CutPrefix(text[:end], "mcp_"); ok && alias != "servers" {
			add(meaning(meant, alias), text[end:])
		}
	}
	if len(found) == 0 {
		return "", "", nil
	}
	if len(found) == 1 {
		return found[0][0], found[0][1], nil
	}
	choices := make([]string, min(len(found), 20))
	for i := range choices {
		choices[i] = "mcp_servers[" + PythonString(found[i][0]) + "]"
		if wantTool {
			choices[i] += "[" + PythonString(found[i][1]) + "]"
		}
	}
	return "", "", fmt.Errorf("several may be meant by %s: write one of %s", PythonString(text), strings.Join(choices, ", "))
}

// meaning returns the names that an identifier, or a name, means.
func meaning(meant map[string][]string, text string) []string {
	if found := meant[text]; found != nil {
		return found
	}
	return meant[norm.NFKC.String(text)]
}

// index reads ["name"], and what follows it. Quotes are missing where a shell has
// read them.
func index(text string) (name, rest string, ok bool) {
	after, ok := strings.CutPrefix(text, "[")
	if !ok {
		return "", "", false
	}
	switch {
	case strings.HasPrefix(after, `"`):
		d := json.NewDecoder(strings.NewReader(after))
		if d.Decode(&name) != nil {
			return "", "", false
		}
		after = after[d.InputOffset():]
	case strings.HasPrefix(after, "'"):
		if name, after, ok = strings.Cut(after[1:], "'"); !ok {
			return "", "", false
		}
	default:
		end := strings.IndexByte(after, ']')
		if end < 0 {
			return "", "", false
		}
		name, after = after[:end], after[end:]
	}
	rest, ok = strings.CutPrefix(after, "]")
	return name, rest, ok && name != ""
}

// isCall reports whether the arguments of a call follow.
func isCall(rest string) bool { return strings.HasPrefix(strings.TrimSpace(rest), "(") }
