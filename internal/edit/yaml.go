package edit

import (
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// The YAML that is changed is a mapping in block form with one of its members
// at the left margin: the mapping, or list, of servers. Its entries are found by
// their indentation. Everything else is refused, or fails the proof.

// span is a part of the lines of the content.
type span struct {
	from, to int // lines, without the end
	indent   int // of the first
}

// block finds the lines of a member at the left margin, below its key's line.
func block(lines []string, key string) (at int, body span, found bool) {
	for i, line := range lines {
		name, ok := yamlKey(line)
		if !ok || name != key {
			continue
		}
		end := i + 1
		for j := i + 1; j < len(lines); j++ {
			if blankLine(lines[j]) {
				continue
			}
			if lines[j][0] != ' ' && lines[j] != "-" && !strings.HasPrefix(lines[j], "- ") {
				break
			}
			end = j + 1
		}
		return i, span{i + 1, end, indentOf(lines[i+1 : end])}, true
	}
	return 0, span{}, false
}

// blankLine reports a line without a value.
func blankLine(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

func leading(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// indentOf returns the indentation of the first line with a value.
func indentOf(lines []string) int {
	for _, line := range lines {
		if !blankLine(line) {
			return leading(line)
		}
	}
	return 2
}

var yamlMember = lazyregexp.New(`^("(?:[^"\\]*)"|'[^']*'|[^\s"'#{}\[\]&*!|>%@,-][^:#]*?)\s*:(\s|$)`)

// yamlKey returns the key of a line without its indentation.
func yamlKey(line string) (string, bool) {
	m := yamlMember().FindStringSubmatch(line)
	if m == nil {
		return "", false
	}
	return strings.Trim(m[1], `"'`), true
}

// entries returns the entries of a block, by name.
func entries(lines []string, body span, named bool) map[string]span {
	out := map[string]span{}
	var starts []int
	for i := body.from; i < body.to; i++ {
		if !blankLine(lines[i]) && leading(lines[i]) == body.indent {
			starts = append(starts, i)
		}
	}
	for n, start := range starts {
		one := span{start, body.to, body.indent}
		if n+1 < len(starts) {
			one.to = starts[n+1]
		}
		for one.to > one.from+1 && blankLine(lines[one.to-1]) {
			one.to--
		}
		if !named {
			if name, ok := yamlKey(lines[start][body.indent:]); ok {
				out[name] = one
			}
			continue
		}
		for i := one.from; i < one.to; i++ {
			line := strings.TrimSpace(lines[i])
			if i == one.from {
				line = strings.TrimSpace(strings.TrimPrefix(line, "-"))
			}
			if rest, ok := strings.CutPrefix(line, "name:"); ok {
				out[strings.Trim(strings.TrimSpace(rest), `"'`)] = one
				break
			}
		}
	}
	return out
}

func (t *source) lines() []string {
	text := strings.TrimSuffix(string(t.text), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// join puts lines together with others in between.
func join(lines []string, from, to int, with ...string) []byte {
	var out []string
	out = append(out, lines[:from]...)
	out = append(out, with...)
	out = append(out, lines[to:]...)
	if len(out) == 0 {
		return nil
	}
	return []byte(strings.Join(out, "\n") + "\n")
}

func (t *source) setYAML(at Place, value any) ([]byte, error) {
	lines := t.lines()
	if len(at.Path) < 2 || len(at.Path) > 3 {
		return nil, errOther
	}
	line, body, found := block(lines, at.Path[0])
	object, whole := value.(Object)
	if len(at.Path) == 3 {
		one, ok := entries(lines, body, at.Named)[at.Path[1]]
		if !ok || whole || at.Named {
			return nil, errOther
		}
		return setMember(lines, one, at.Path[2], value)
	}
	if !whole {
		return nil, errOther
	}
	if !found {
		text := append([]string{tidyKey(at.Path[0]) + ":"}, yamlEntry(at, object, 2)...)
		for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
			lines = lines[:len(lines)-1]
		}
		return join(lines, len(lines), len(lines), text...), nil
	}
	if body.from == body.to { // no entries: "key:", "key: {}" or "key: []"
		_, rest, _ := strings.Cut(lines[line], ":")
		rest, comment, _ := strings.Cut(rest, " #")
		switch strings.TrimSpace(rest) {
		case "", "{}", "[]", "null", "~":
		default:
			return nil, errOther
		}
		head := lines[line][:strings.Index(lines[line], ":")+1]
		if comment != "" {
			head += " #" + comment
		}
		return join(lines, line, line+1, append([]string{head}, yamlEntry(at, object, 2)...)...), nil
	}
	text := yamlEntry(at, object, body.indent)
	if one, ok := entries(lines, body, at.Named)[at.Path[1]]; ok {
		return join(lines, one.from, one.to, text...), nil
	}
	return join(lines, body.to, body.to, text...), nil
}

// setMember sets a simple value in an entry.
func setMember(lines []string, one span, key string, value any) ([]byte, error) {
	inner := indentOf(lines[one.from+1 : one.to])
	if inner <= one.indent {
		return nil, errOther
	}
	text := strings.Repeat(" ", inner) + tidyKey(key) + ": " + encode(value)
	for i := one.from + 1; i < one.to; i++ {
		if leading(lines[i]) == inner && !blankLine(lines[i]) {
			if name, ok := yamlKey(lines[i][inner:]); ok && name == key {
				if j := strings.Index(lines[i], " #"); j >= 0 {
					text += lines[i][j:]
				}
				return join(lines, i, i+1, text), nil
			}
		}
	}
	return join(lines, one.from+1, one.from+1, text), nil
}

func (t *source) removeYAML(at Place) ([]byte, error) {
	lines := t.lines()
	if len(at.Path) != 2 {
		return nil, errOther
	}
	line, body, _ := block(lines, at.Path[0])
	all := entries(lines, body, at.Named)
	one, ok := all[at.Path[1]]
	switch {
	case !ok:
		return nil, errOther
	case len(all) > 1:
		return join(lines, one.from, one.to), nil
	case at.Named: // an empty list: the key goes, too
		return join(lines, line, one.to), nil
	}
	key := lines[line][:strings.Index(lines[line], ":")+1]
	return join(append(append([]string{}, lines[:line]...), append([]string{key + " {}"}, lines[line+1:]...)...), one.from, one.to), nil
}

// yamlEntry formats an entry of a mapping, or of a list of named objects.
func yamlEntry(at Place, object Object, indent int) []string {
	pad := strings.Repeat(" ", indent)
	if !at.Named {
		return append([]string{pad + tidyKey(at.Path[1]) + ":"}, yamlObject(object, indent+2)...)
	}
	lines := yamlObject(object, indent+2)
	lines[0] = pad + "- " + strings.TrimLeft(lines[0], " ")
	return lines
}

func yamlObject(object Object, indent int) []string {
	pad := strings.Repeat(" ", indent)
	var out []string
	for _, m := range object {
		switch v := m.Value.(type) {
		case []string:
			if len(v) == 0 {
				out = append(out, pad+tidyKey(m.Key)+": []")
				continue
			}
			out = append(out, pad+tidyKey(m.Key)+":")
			for _, item := range v {
				out = append(out, pad+"  - "+tidyText(item))
			}
		case Object:
			if len(v) == 0 {
				out = append(out, pad+tidyKey(m.Key)+": {}")
				continue
			}
			out = append(out, pad+tidyKey(m.Key)+":")
			out = append(out, yamlObject(v, indent+2)...)
		case string:
			out = append(out, pad+tidyKey(m.Key)+": "+tidyText(v))
		default:
			out = append(out, fmt.Sprintf("%s%s: %s", pad, tidyKey(m.Key), encode(v)))
		}
	}
	return out
}

var simple = lazyregexp.New(`^[A-Za-z/_][A-Za-z0-9/_.-]*$`)

// tidyText quotes text unless it cannot mean anything else.
func tidyText(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		return quote(s)
	}
	if simple().MatchString(s) {
		return s
	}
	return quote(s) // JSON's strings are YAML's
}

func tidyKey(s string) string { return tidyText(s) }
