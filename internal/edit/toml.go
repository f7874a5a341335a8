package edit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A table of TOML content is a header and the lines below it.
type table struct {
	path       []string
	list       bool // [[path]]
	start, end int  // offsets: the header's line, and the end of what belongs to it
	body       int  // the line after the header
}

// tables finds the headers of TOML content, and nothing in strings and lists.
func (t *source) tables() []table {
	var out []table
	text := string(t.text)
	depth, value := 0, false // brackets of a list or an inline table; after a "="
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '#':
			i += lineLength(text[i:])
			continue
		case c == '\n':
			if depth == 0 {
				value = false
			}
		case c == '=':
			value = true
		case c == '"' || c == '\'':
			i += stringLength(text[i:])
			continue
		case value && (c == '[' || c == '{'):
			depth++
		case value && (c == ']' || c == '}'):
			depth = max(0, depth-1)
		case c == '[' && strings.TrimSpace(text[t.lineStart(i):i]) == "":
			line := text[i : i+lineLength(text[i:])]
			inner, list := line[1:], false
			if strings.HasPrefix(inner, "[") {
				inner, list = inner[1:], true
			}
			path, ok := headerKey(inner)
			if n := len(out); n > 0 {
				out[n-1].end = t.lineStart(i)
			}
			if ok {
				out = append(out, table{path: path, list: list, start: t.lineStart(i), body: min(len(text), i+len(line)+1), end: len(text)})
			}
			i += len(line)
			continue
		}
		i++
	}
	// Comments and blank lines right above a header belong to it.
	for i := range out {
		for out[i].end > out[i].body {
			start := t.lineStart(out[i].end - 1)
			line := strings.TrimSpace(text[start:out[i].end])
			if line != "" && (line[0] != '#' || i+1 == len(out)) {
				break
			}
			out[i].end = start
		}
	}
	return out
}

// lineLength returns the length of the rest of a line.
func lineLength(s string) int {
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return i
	}
	return len(s)
}

// stringLength returns the length of the string that s starts with.
func stringLength(s string) int {
	q := s[:1]
	if strings.HasPrefix(s, q+q+q) {
		for i := 3; i < len(s); i++ {
			if s[i] == '\\' && q == `"` {
				i++
			} else if strings.HasPrefix(s[i:], q+q+q) {
				i += 3
				for i < len(s) && s[i] == q[0] { // up to two more belong to it
					i++
				}
				return i
			}
		}
		return len(s)
	}
	for i := 1; i < len(s) && s[i] != '\n'; i++ {
		if s[i] == '\\' && q == `"` {
			i++
		} else if s[i] == q[0] {
			return i + 1
		}
	}
	return lineLength(s)
}

// headerKey reads the dotted key of a header, up to its bracket.
func headerKey(s string) (path []string, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t")
		switch {
		case s == "":
			return nil, false
		case s[0] == '"' || s[0] == '\'':
			n := stringLength(s)
			if n < 2 || s[n-1] != s[0] {
				return nil, false
			}
			part := s[1 : n-1]
			if s[0] == '"' && strings.Contains(part, `\`) {
				return nil, false
			}
			path, s = append(path, part), s[n:]
		default:
			n := strings.IndexAny(s, ".] \t")
			if n <= 0 {
				return nil, false
			}
			path, s = append(path, s[:n]), s[n:]
		}
		s = strings.TrimLeft(s, " \t")
		switch {
		case strings.HasPrefix(s, "."):
			s = s[1:]
		case strings.HasPrefix(s, "]"):
			return path, true
		default:
			return nil, false
		}
	}
}

// setTOML writes an object as a table of its own, and another value as a line
// of the table that it belongs to.
func (t *source) setTOML(path []string, value any) ([]byte, error) {
	if object, ok := value.(Object); ok {
		text, err := tomlTable(path, object)
		if err != nil {
			return nil, err
		}
		rest, at := t.withoutTOML(path)
		if at < 0 {
			return appendBlock(rest, text), nil
		}
		return append(append(slices.Clone(rest[:at]), text...), rest[at:]...), nil
	}
	if len(path) < 2 {
		return nil, errOther
	}
	parent, key := path[:len(path)-1], path[len(path)-1]
	text, err := tomlValue(value)
	if err != nil {
		return nil, err
	}
	table, from, to, ok := t.lineTOML(parent, key)
	if !ok {
		return nil, errOther
	}
	if from < 0 {
		start := string(t.text[:table.body])
		if !strings.HasSuffix(start, "\n") {
			start += "\n"
		}
		return []byte(start + tomlKey(key) + " = " + text + "\n" + string(t.text[table.body:])), nil
	}
	name, rest, _ := strings.Cut(string(t.text[from:to]), "=")
	comment := ""
	if i := strings.Index(rest, " #"); i >= 0 {
		comment = rest[i:]
	}
	return t.replace(from, to, name+"= "+text+comment), nil
}

// lineTOML returns the table of a path, and where in it the line of a key is;
// from is -1 if there is none.
func (t *source) lineTOML(path []string, key string) (found table, from, to int, ok bool) {
	for _, one := range t.tables() {
		if one.list || !slices.Equal(one.path, path) {
			continue
		}
		for at := one.body; at < one.end; {
			next := at + lineLength(string(t.text[at:])) + 1
			end := min(next-1, len(t.text))
			if name, _, ok := strings.Cut(string(t.text[at:end]), "="); ok && strings.Trim(strings.TrimSpace(name), `"'`) == key {
				return one, at, end, true
			}
			at = next
		}
		return one, -1, -1, true
	}
	return found, -1, -1, false
}

// removeTOML removes a table with the tables below it, or one line.
func (t *source) removeTOML(path []string) ([]byte, error) {
	rest, at := t.withoutTOML(path)
	if at < 0 {
		if _, from, to, ok := t.lineTOML(path[:len(path)-1], path[len(path)-1]); ok && from >= 0 {
			return t.replace(from, min(to+1, len(t.text)), ""), nil
		}
		return nil, errOther
	}
	if at == len(rest) { // it was the last: no blank line is left behind
		trimmed := strings.TrimRight(string(rest), "\n")
		if trimmed != "" {
			trimmed += "\n"
		}
		return []byte(trimmed), nil
	}
	return append(slices.Clone(rest[:at]), strings.TrimLeft(string(rest[at:]), "\n")...), nil
}

// withoutTOML cuts a table with the tables below it, and returns where it was,
// or -1.
func (t *source) withoutTOML(path []string) (rest []byte, at int) {
	at = -1
	from := 0
	for _, table := range t.tables() {
		if len(table.path) < len(path) || !slices.Equal(table.path[:len(path)], path) {
			continue
		}
		if between := t.text[from:table.start]; at != len(rest) || len(bytes.TrimSpace(between)) > 0 {
			rest = append(rest, between...)
		}
		if at < 0 {
			at = len(rest)
		}
		from = table.end
	}
	return append(rest, t.text[from:]...), at
}

// appendBlock adds a block at the end, after a blank line.
func appendBlock(text, block []byte) []byte {
	s := string(text)
	if s != "" {
		if !strings.HasSuffix(s, "\n") {
			s += "\n"
		}
		if !strings.HasSuffix(s, "\n\n") && strings.TrimSpace(s) != "" {
			s += "\n"
		}
	}
	return []byte(s + string(block))
}

func tomlTable(path []string, object Object) ([]byte, error) {
	keys := make([]string, len(path))
	for i, key := range path {
		keys[i] = tomlKey(key)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]\n", strings.Join(keys, "."))
	for _, m := range object {
		text, err := tomlValue(m.Value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s = %s\n", tomlKey(m.Key), text)
	}
	return []byte(b.String()), nil
}

func tomlKey(key string) string {
	if key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" {
		return key
	}
	return quote(key) // JSON's escapes are valid in TOML
}

func tomlValue(value any) (string, error) {
	switch v := value.(type) {
	case string, bool, int:
		return encode(v), nil
	case []string:
		return render(v, "", ""), nil
	case Object:
		var items []string
		for _, m := range v {
			text, err := tomlValue(m.Value)
			if err != nil {
				return "", err
			}
			items = append(items, tomlKey(m.Key)+" = "+text)
		}
		return "{ " + strings.Join(items, ", ") + " }", nil
	}
	return "", errOther
}
