package edit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// setJSON replaces a value, or inserts a member after the last one.
func (t *source) setJSON(path []string, value any) ([]byte, error) {
	if len(bytes.TrimSpace(t.text)) == 0 {
		return []byte(render(nest(path, value), "", "  ") + "\n"), nil
	}
	root, err := hujson.Parse(t.text)
	if err != nil {
		return nil, err
	}
	v := &root
	for i, key := range path {
		object, ok := v.Value.(*hujson.Object)
		if !ok {
			if lit, null := v.Value.(hujson.Literal); null && lit.Kind() == 'n' {
				return t.replace(v.StartOffset, v.EndOffset, t.renderAt(v.StartOffset, nest(path[i:], value))), nil
			}
			return nil, fmt.Errorf("%q is not an object in the file", strings.Join(path[:i], "."))
		}
		next := memberOf(object, key)
		if next == nil {
			return t.insert(v, object, key, nest(path[i+1:], value)), nil
		}
		v = next
	}
	return t.replace(v.StartOffset, v.EndOffset, t.renderAt(v.StartOffset, value)), nil
}

// removeJSON removes a member with its comma.
func (t *source) removeJSON(path []string) ([]byte, error) {
	root, err := hujson.Parse(t.text)
	if err != nil {
		return nil, err
	}
	pointer := ""
	for _, key := range path {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	}
	patch, err := json.Marshal([]any{map[string]string{"op": "remove", "path": pointer}})
	if err != nil {
		return nil, err
	}
	if err := root.Patch(patch); err != nil {
		return nil, err
	}
	return root.Pack(), nil
}

func memberOf(object *hujson.Object, key string) *hujson.Value {
	for i := range object.Members {
		if name, ok := object.Members[i].Name.Value.(hujson.Literal); ok && name.String() == key {
			return &object.Members[i].Value
		}
	}
	return nil
}

// nest puts a value below a path of new objects.
func nest(path []string, value any) any {
	for i := len(path) - 1; i >= 0; i-- {
		value = Object{{path[i], value}}
	}
	return value
}

func (t *source) replace(from, to int, with string) []byte {
	return slices.Concat(t.text[:from], []byte(with), t.text[to:])
}

// insert adds a member at the end of an object.
func (t *source) insert(v *hujson.Value, object *hujson.Object, key string, value any) []byte {
	open, end := v.StartOffset+1, v.EndOffset-1
	inside := string(t.text[open:end])
	unit := t.unit()
	name := quote(key) + ": "
	if unit == "" || len(object.Members) > 0 && !strings.Contains(inside, "\n") { // all on one line
		if len(object.Members) == 0 {
			return t.replace(open, end, strings.TrimRight(inside, " \t")+name+render(value, "", ""))
		}
		last := object.Members[len(object.Members)-1].Value.EndOffset
		rest := strings.TrimLeft(strings.TrimPrefix(strings.TrimLeft(string(t.text[last:end]), " \t"), ","), " \t")
		return t.replace(last, end, ", "+name+render(value, "", "")+" "[:min(1, len(inside)-len(strings.TrimRight(inside, " \t")))]+rest)
	}
	below := t.indentAt(v.StartOffset)
	indent := below + unit
	if len(object.Members) == 0 {
		return t.replace(open, end, strings.TrimRight(inside, " \t\n")+"\n"+indent+name+render(value, indent, unit)+"\n"+below)
	}
	first := object.Members[0].Name.StartOffset
	if start := t.lineStart(first); strings.TrimSpace(string(t.text[start:first])) == "" {
		indent = string(t.text[start:first])
	}
	// A comma follows the last value directly; comments after it stay there.
	last := object.Members[len(object.Members)-1].Value
	rest, comma := string(t.text[last.EndOffset:end]), ""
	if last.AfterExtra != nil { // a trailing comma
		comma = ","
	} else {
		rest = "," + rest
	}
	return t.replace(last.EndOffset, end, strings.TrimRight(rest, " \t\n")+"\n"+indent+name+render(value, indent, unit)+comma+"\n"+below)
}

func (t *source) lineStart(at int) int { return bytes.LastIndexByte(t.text[:at], '\n') + 1 }

// indentAt returns the white space at the start of a line.
func (t *source) indentAt(at int) string {
	line := string(t.text[t.lineStart(at):at])
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// unit returns what one level is indented by, or an empty string for content on
// one line.
func (t *source) unit() string {
	body := bytes.TrimSpace(t.text)
	if !bytes.Contains(body, []byte("\n")) && string(body) != "{}" {
		return ""
	}
	for line := range bytes.Lines(t.text) {
		rest := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(rest); n > 0 && n <= 8 && bytes.HasPrefix(rest, []byte(`"`)) {
			return string(line[:n])
		}
	}
	return "  "
}

func (t *source) renderAt(at int, value any) string {
	return render(value, t.indentAt(at), t.unit())
}

// render formats a value as JSON. Lists are on one line, and so is everything
// without a unit of indentation.
func render(value any, indent, unit string) string {
	object, ok := value.(Object)
	if list, isList := value.([]any); isList {
		items := make([]string, len(list))
		for i := range list {
			items[i] = render(list[i], "", "")
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	if list, isList := value.([]string); isList {
		items := make([]string, len(list))
		for i := range list {
			items[i] = quote(list[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	switch {
	case !ok:
		return encode(value)
	case len(object) == 0:
		return "{}"
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, m := range object {
		switch {
		case unit != "":
			b.WriteString(strings.Repeat(",", min(i, 1)) + "\n" + indent + unit)
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(quote(m.Key) + ": " + render(m.Value, indent+unit, unit))
	}
	if unit != "" {
		b.WriteString("\n" + indent)
	}
	b.WriteByte('}')
	return b.String()
}

func quote(s string) string { return encode(s) }

// encode writes JSON without escaping it for HTML.
func encode(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil { // not of what this package is given
		return "null"
	}
	return strings.TrimSpace(b.String())
}
