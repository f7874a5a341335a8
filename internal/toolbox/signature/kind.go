package signature

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// writer writes types of one schema document.
type writer struct {
	document json.RawMessage // what references point into
	// values and valueText bound an enumeration that is written out.
	values, valueText int
	defaultText       int                        // characters of a default
	terse             bool                       // a default may replace the type
	room              int                        // characters of an object's properties; "...: ..." stands for the rest
	nested            int                        // levels of objects whose properties are written out
	nodes             int                        // looked at so far
	pointed           int                        // bytes, see maxPointed
	followed          map[string]json.RawMessage // what references lead to, by their text
}

var names = map[string]string{
	"string": "str", "integer": "int", "number": "float", "boolean": "bool",
	"array": "list", "object": "dict", "null": "None",
}

// schema has the members of a JSON Schema that determine its type.
type schema struct {
	ref, items, properties        json.RawMessage
	types                         []string
	values                        []json.RawMessage // of enum or const
	enumerated                    bool
	options, all                  []json.RawMessage
	additional                    json.RawMessage
	tooManyValues, tooManyOptions bool
	nullable                      bool // as OpenAPI has it
}

func parse(raw json.RawMessage) schema {
	var s schema
	members(raw, func(key string, value json.RawMessage) {
		switch key {
		case "$ref":
			s.ref = value
		case "type":
			if name, ok := str(value); ok {
				s.types = []string{name}
				return
			}
			elements(value, func(v json.RawMessage) {
				if name, ok := str(v); ok && len(s.types) < 8 {
					s.types = append(s.types, name)
				}
			})
		case "enum":
			s.enumerated = true
			elements(value, func(v json.RawMessage) {
				if len(s.values) < 64 {
					s.values = append(s.values, v)
				} else {
					s.tooManyValues = true
				}
			})
		case "const":
			s.enumerated = true
			s.values = []json.RawMessage{value}
		case "anyOf", "oneOf":
			elements(value, func(v json.RawMessage) {
				if len(s.options) < 8 {
					s.options = append(s.options, v)
				} else {
					s.tooManyOptions = true
				}
			})
		case "allOf":
			elements(value, func(v json.RawMessage) {
				if len(s.all) < 8 {
					s.all = append(s.all, v)
				}
			})
		case "items":
			s.items = value
		case "properties":
			s.properties = value
		case "additionalProperties":
			s.additional = value
		case "nullable":
			s.nullable = jsonscan.Kind(value) == 't'
		}
	})
	return s
}

// kind returns the type of a schema in Python's notation, or "" where the schema
// does not determine one.
func (w *writer) kind(raw json.RawMessage, depth int) string { return join(w.kinds(raw, depth)) }

// kinds returns the types that a value may have, or nil where the schema does not
// determine them.
func (w *writer) kinds(raw json.RawMessage, depth int) []string {
	if w.nodes++; w.nodes > maxNodes || depth > maxDepth {
		return nil
	}
	s := parse(raw)
	switch {
	case s.ref != nil:
		return w.kinds(w.follow(s.ref), depth+1)
	case s.enumerated:
		if kinds := w.literals(&s); kinds != nil {
			return kinds
		}
		if len(s.types) == 0 {
			return valueKinds(s.values)
		}
	case len(s.options) > 0 && len(s.types) == 0:
		return w.union(&s, depth)
	case len(s.all) > 0 && len(s.types) == 0 && s.properties == nil:
		for _, part := range s.all {
			if kinds := w.kinds(part, depth+1); kinds != nil {
				return kinds
			}
		}
		return nil
	}
	if len(s.types) == 0 {
		switch {
		case s.properties != nil:
			s.types = []string{"object"}
		case s.items != nil:
			s.types = []string{"array"}
		}
	}
	var kinds []string
	for _, t := range s.types {
		text := names[t]
		switch t {
		case "array":
			text = w.list(&s, depth)
		case "object":
			text = w.object(raw, &s, depth)
		}
		if text == "" {
			return nil // not a type of JSON Schema
		}
		kinds = append(kinds, text)
	}
	if s.nullable && kinds != nil {
		kinds = append(kinds, "None")
	}
	return kinds
}

// join writes a union: each type once, None last.
func join(kinds []string) string {
	var out []string
	null := false
	for _, k := range kinds {
		if k == "None" {
			null = true
		} else if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	if slices.Contains(out, "float") { // an int is one
		out = slices.DeleteFunc(out, func(k string) bool { return k == "int" })
	}
	if null {
		out = append(out, "None")
	}
	return strings.Join(out, " | ")
}

func (w *writer) union(s *schema, depth int) []string {
	var kinds []string
	for _, option := range s.options {
		more := w.kinds(option, depth+1)
		if more == nil {
			return nil
		}
		kinds = append(kinds, more...)
	}
	if s.tooManyOptions || len(kinds) > 8 || len(join(kinds)) > max(w.valueText, 60) {
		// Less exactly: list instead of list[str], and so on.
		for i, k := range kinds {
			kinds[i] = loose(k)
		}
	}
	return kinds
}

// loose returns a type without its type arguments.
func loose(kind string) string {
	switch {
	case strings.HasPrefix(kind, "list["):
		return "list"
	case strings.HasPrefix(kind, "{"), strings.HasPrefix(kind, "dict["):
		return "dict"
	case strings.HasPrefix(kind, "Literal["):
		return "str"
	}
	return kind
}

func (w *writer) list(s *schema, depth int) string {
	if jsonscan.Kind(s.items) != '{' {
		return "list"
	}
	of := w.kind(s.items, depth+1)
	if of == "" || w.nested == 0 && len(of) > 80 {
		return "list"
	}
	return "list[" + of + "]"
}

// object writes the properties of an object, where that is asked for and short
// enough, in the manner of an inline TypedDict.
func (w *writer) object(raw json.RawMessage, s *schema, depth int) string {
	if s.properties == nil {
		if jsonscan.Kind(s.additional) == '{' {
			if of := w.kind(s.additional, depth+1); of != "" {
				return "dict[str, " + of + "]"
			}
		}
		return "dict"
	}
	if w.nested == 0 {
		return "dict"
	}
	of := properties(raw)
	if len(of) == 0 {
		return "dict"
	}
	w.nested--
	defer func() { w.nested++ }()
	var parts []string
	used := 0
	for _, p := range of {
		kind := w.kind(p.schema, depth+1)
		if kind == "" {
			kind = "Any"
		}
		if !p.Required {
			kind = "NotRequired[" + kind + "]"
		}
		part := quote(p.Name) + ": " + kind
		if used += len(part) + 2; used > w.room || len(parts) == 24 {
			parts = append(parts, "...: ...")
			break
		}
		parts = append(parts, part)
	}
	if rest := w.rest(s, depth); rest != "" && parts[len(parts)-1] != "...: ..." {
		parts = append(parts, "...: "+rest)
	}
	if len(parts) == 1 && parts[0] == "...: ..." {
		return "dict"
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// rest returns the type of the properties that a schema does not name, where it
// says one.
func (w *writer) rest(s *schema, depth int) string {
	if jsonscan.Kind(s.additional) != '{' {
		return ""
	}
	return w.kind(s.additional, depth+1)
}

// literals writes an enumeration, if it is a small one of plain values.
func (w *writer) literals(s *schema) []string {
	if len(s.values) == 0 || len(s.values) > w.values || s.tooManyValues {
		return nil
	}
	var parts, kinds []string
	used := 0
	for _, v := range s.values {
		if jsonscan.Kind(v) == 'n' {
			kinds = []string{"None"}
			continue
		}
		text, ok := literal(v, w.valueText)
		if !ok || jsonscan.Kind(v) == '{' || jsonscan.Kind(v) == '[' {
			return nil
		}
		if used += len(text) + 2; used > w.valueText {
			return nil
		}
		parts = append(parts, text)
	}
	if slices.Contains(s.types, "null") {
		kinds = []string{"None"}
	}
	if len(parts) > 0 {
		kinds = append(kinds, "Literal["+strings.Join(parts, ", ")+"]")
	}
	return kinds
}

// valueKinds returns the types of an enumeration's values.
func valueKinds(values []json.RawMessage) []string {
	var kinds []string
	for _, v := range values {
		switch jsonscan.Kind(v) {
		case '"':
			kinds = append(kinds, "str")
		case 't', 'f':
			kinds = append(kinds, "bool")
		case 'n':
			kinds = append(kinds, "None")
		case '{':
			kinds = append(kinds, "dict")
		case '[':
			kinds = append(kinds, "list")
		default:
			kinds = append(kinds, "float")
		}
	}
	return kinds
}

// literal writes a JSON value as Python does, if it is at most limit characters.
func literal(raw json.RawMessage, limit int) (string, bool) {
	if len(raw) > 4*limit+16 {
		return "", false
	}
	var text string
	switch jsonscan.Kind(raw) {
	case '"':
		s, ok := str(raw)
		if !ok {
			return "", false
		}
		text = quote(s)
	case 't':
		text = "True"
	case 'f':
		text = "False"
	case 'n':
		text = "None"
	case '[':
		parts, ok := []string{}, true
		elements(raw, func(v json.RawMessage) {
			part, fits := literal(v, limit)
			parts, ok = append(parts, part), ok && fits
		})
		if !ok {
			return "", false
		}
		text = "[" + strings.Join(parts, ", ") + "]"
	case '{':
		parts, ok := []string{}, true
		members(raw, func(key string, v json.RawMessage) {
			part, fits := literal(v, limit)
			parts, ok = append(parts, quote(key)+": "+part), ok && fits
		})
		if !ok {
			return "", false
		}
		text = "{" + strings.Join(parts, ", ") + "}"
	default:
		text = string(raw) // a number is the same
	}
	return text, len(text) <= limit
}

// quote writes a string as Python does; what would not be seen is escaped.
func quote(s string) string {
	mark := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		mark = '"'
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	secret := invisible.In(s)
	var b strings.Builder
	b.WriteByte(mark)
	for _, r := range s {
		switch {
		case r == rune(mark) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case slices.Contains(secret, r):
			writeEscape(&b, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte(mark)
	return b.String()
}

func writeEscape(b *strings.Builder, r rune) {
	const digits = "0123456789abcdef"
	width, mark := 8, byte('U')
	switch {
	case r < 0x100:
		width, mark = 2, 'x'
	case r < 0x10000:
		width, mark = 4, 'u'
	}
	b.WriteByte('\\')
	b.WriteByte(mark)
	for shift := 4 * (width - 1); shift >= 0; shift -= 4 {
		b.WriteByte(digits[r>>shift&15])
	}
}
