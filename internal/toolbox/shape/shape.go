// Package shape learns the types of the values that a tool returns, for tools
// without an output schema. A shape has types and names of keys, and never a
// value. Results are untrusted: what a shape holds of them is bounded, and a key
// that does not look like the name of a field counts as data and is left out.
package shape

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Bounds of a shape, and of what is read of a result.
const (
	MaxResult = 64 << 10 // bytes of a result that is looked at
	maxBytes  = 4 << 10  // of a shape as JSON
	maxDepth  = 5        // levels of objects and lists
	maxKeys   = 64       // of one object
	maxItems  = 20       // of one list, or of the values of a map
	maxNodes  = 2000     // values looked at in one result
)

// Shape describes the values that were seen, as a JSON Schema of types only.
// It is immutable once it was returned.
type Shape struct {
	// Types are JSON Schema's names, sorted.
	Types      []string          `json:"type,omitempty"`
	Properties map[string]*Shape `json:"properties,omitempty"`
	// Required are the properties that every object had, sorted.
	Required []string `json:"required,omitempty"`
	// Values is what the values of all other keys have in common.
	Values *Shape `json:"additionalProperties,omitempty"`
	Items  *Shape `json:"items,omitempty"`
}

// Of returns the shape of the value that a call returns for a raw result of a
// tool without an output schema, or nil if there is nothing to learn from it. It
// unwraps the result as the sandbox's values.py does.
func Of(result json.RawMessage) *Shape {
	if len(result) > MaxResult || jsonscan.Kind(result) != '{' {
		return nil
	}
	var content, structured json.RawMessage
	failed := false
	err := jsonscan.Members(result, func(key string, value json.RawMessage) bool {
		switch key {
		case "content":
			content = value
		case "structuredContent":
			structured = value
		case "isError":
			kind := jsonscan.Kind(value)
			failed = kind != 'f' && kind != 'n' && string(value) != `"false"`
		}
		return true
	})
	if err != nil || failed {
		return nil
	}
	value := unwrapped(content, structured)
	if value == nil {
		return nil
	}
	r := reader{}
	return r.shape(value, 0).bounded()
}

// unwrapped returns the value of a result as JSON.
func unwrapped(content, structured json.RawMessage) json.RawMessage {
	text, isText := textOf(content)
	if structured != nil && jsonscan.Kind(structured) != 'n' {
		var only json.RawMessage
		n := 0
		if jsonscan.Kind(structured) == '{' {
			_ = jsonscan.Members(structured, func(key string, value json.RawMessage) bool { // validated on arrival
				var s string
				if n++; key == "result" || jsonscan.Kind(value) == '"' && isText && json.Unmarshal(value, &s) == nil && s == text {
					only = value
				}
				return true
			})
		}
		if n == 1 && only != nil {
			return only
		}
		return structured
	}
	if !isText {
		return content
	}
	if trimmed := strings.TrimSpace(text); trimmed != "" && (trimmed[0] == '{' || trimmed[0] == '[') && jsonscan.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed)
	}
	return json.RawMessage(`""`)
}

// textOf returns the content of a result if it is only text.
func textOf(content json.RawMessage) (text string, ok bool) {
	var blocks []json.RawMessage
	if jsonscan.Kind(content) != '[' {
		blocks = append(blocks, content) // some servers write one block without the list
	} else if json.Unmarshal(content, &blocks) != nil || len(blocks) == 0 {
		return "", false
	}
	texts := make([]string, len(blocks))
	for i, raw := range blocks {
		var b struct{ Type, Text *string }
		switch jsonscan.Kind(raw) {
		case '"':
			ok = json.Unmarshal(raw, &texts[i]) == nil
		case '{':
			ok = json.Unmarshal(raw, &b) == nil && (b.Type == nil && b.Text != nil || b.Type != nil && *b.Type == "text")
			if ok && b.Text != nil {
				texts[i] = *b.Text
			}
		default:
			ok = false
		}
		if !ok {
			return "", false
		}
	}
	return strings.Join(texts, "\n"), true
}

// reader bounds what is looked at in one result.
type reader struct{ nodes int }

func (r *reader) shape(value json.RawMessage, depth int) *Shape {
	r.nodes++
	switch jsonscan.Kind(value) {
	case '{':
		s := &Shape{Types: []string{"object"}}
		if depth < maxDepth {
			r.object(s, value, depth)
		}
		return s
	case '[':
		s := &Shape{Types: []string{"array"}}
		if depth == maxDepth {
			return s
		}
		n := 0
		_ = jsonscan.Elements(value, func(item json.RawMessage) bool { // validated on arrival
			s.Items = Merge(s.Items, r.shape(item, depth+1))
			n++
			return n < maxItems && r.nodes < maxNodes
		})
		return s
	case '"':
		return &Shape{Types: []string{"string"}}
	case 't', 'f':
		return &Shape{Types: []string{"boolean"}}
	case 'n':
		return &Shape{Types: []string{"null"}}
	}
	if bytes.ContainsAny(value, ".eE") {
		return &Shape{Types: []string{"number"}}
	}
	return &Shape{Types: []string{"integer"}}
}

// object reads the members of an object into its shape.
func (r *reader) object(s *Shape, value json.RawMessage, depth int) {
	fields, others := map[string]*Shape{}, 0
	_ = jsonscan.Members(value, func(key string, v json.RawMessage) bool { // validated on arrival
		of := r.shape(v, depth+1)
		if IsField(key) && len(fields) < maxKeys {
			fields[key] = of
		} else {
			others++
			s.Values = Merge(s.Values, of)
		}
		return others < maxItems && r.nodes < maxNodes
	})
	s.Properties, s.Required = fields, slices.Sorted(maps.Keys(fields))
	if len(fields) < 3*others || alike(fields) {
		s.toMap()
	}
	if len(s.Properties) == 0 {
		s.Properties, s.Required = nil, nil
	}
}

// alike reports whether an object is a map from data to records: several values,
// all of them objects with the same keys.
func alike(fields map[string]*Shape) bool {
	var first []string
	for _, f := range fields {
		if len(f.Properties) == 0 || first != nil && !slices.Equal(first, f.Required) {
			return false
		}
		first = f.Required
	}
	return len(fields) >= 4
}

// toMap makes an object a map: the keys are data and only the values count.
func (s *Shape) toMap() {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		s.Values = Merge(s.Values, s.Properties[name])
	}
	s.Properties, s.Required = nil, nil
}

// Merge returns what two shapes have in common: all types and keys, and the keys
// that both always have. Either may be nil.
func Merge(a, b *Shape) *Shape {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	if a.equal(b) {
		return a
	}
	m := &Shape{Types: append(slices.Clone(a.Types), b.Types...), Items: Merge(a.Items, b.Items), Values: Merge(a.Values, b.Values)}
	slices.Sort(m.Types)
	m.Types = slices.Compact(m.Types)
	if len(a.Properties)+len(b.Properties) == 0 {
		return m
	}
	m.Properties = maps.Clone(a.Properties)
	if m.Properties == nil {
		m.Properties = map[string]*Shape{}
	}
	for name, of := range b.Properties {
		m.Properties[name] = Merge(m.Properties[name], of)
	}
	isObject := func(s *Shape) bool { return slices.Contains(s.Types, "object") }
	switch {
	case !isObject(a):
		m.Required = b.Required
	case !isObject(b):
		m.Required = a.Required
	default:
		for _, name := range a.Required {
			if slices.Contains(b.Required, name) {
				m.Required = append(m.Required, name)
			}
		}
	}
	aMap, bMap := a.Values != nil && a.Properties == nil, b.Values != nil && b.Properties == nil
	if aMap || bMap || len(m.Properties) > maxKeys || len(m.Properties) > 8 && len(m.Required) == 0 {
		m.toMap() // the keys change from call to call
	}
	return m
}

// Learn returns the shape after one more result. It returns known itself if the
// result adds nothing.
func Learn(known, seen *Shape) *Shape {
	merged := Merge(known, seen)
	if merged.equal(known) {
		return known
	}
	if merged = merged.bounded(); merged.equal(known) {
		return known
	}
	return merged
}

func (s *Shape) equal(t *Shape) bool {
	if s == t || s == nil || t == nil {
		return s == t
	}
	return slices.Equal(s.Types, t.Types) && slices.Equal(s.Required, t.Required) &&
		maps.EqualFunc(s.Properties, t.Properties, (*Shape).equal) && s.Values.equal(t.Values) && s.Items.equal(t.Items)
}

// Schema returns the shape as a JSON Schema.
func (s *Shape) Schema() json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil { // cannot happen: strings and maps of them
		return json.RawMessage(`{}`)
	}
	return raw
}

// bounded returns the shape with as many levels as the bound has room for.
func (s *Shape) bounded() *Shape {
	for depth := maxDepth; s != nil && len(s.Schema()) > maxBytes; depth-- {
		s = s.cut(depth)
	}
	return s
}

func (s *Shape) cut(depth int) *Shape {
	if s == nil {
		return nil
	}
	c := &Shape{Types: s.Types}
	if depth <= 0 {
		return c
	}
	c.Required, c.Items, c.Values = s.Required, s.Items.cut(depth-1), s.Values.cut(depth-1)
	if s.Properties != nil {
		c.Properties = map[string]*Shape{}
		for name, of := range s.Properties {
			c.Properties[name] = of.cut(depth - 1)
		}
	}
	return c
}

// Sound returns a shape that was read from a file, as far as this package could
// have written it, or nil.
func (s *Shape) Sound() *Shape {
	if s == nil || !s.sound(0) || len(s.Schema()) > maxBytes {
		return nil
	}
	return s
}

func (s *Shape) sound(depth int) bool {
	if s == nil {
		return true
	}
	for name, of := range s.Properties {
		if of == nil || !IsField(name) || !of.sound(depth+1) {
			return false
		}
	}
	for _, name := range s.Required {
		if s.Properties[name] == nil {
			return false
		}
	}
	return depth <= maxDepth+1 && s.Items.sound(depth+1) && s.Values.sound(depth+1)
}

// IsField reports whether a key looks like the name of a field, and not like
// data: an identifier of ASCII letters that is neither long nor random.
func IsField(key string) bool {
	const maxLength, maxDigits, maxWord, maxHumps = 40, 3, 20, 5
	if key == "" || len(key) > maxLength {
		return false
	}
	if strings.Trim(key, "0123456789abcdefABCDEF") == "" && strings.ContainsAny(key, "0123456789") && len(key) > 5 {
		return false // a digest
	}
	digits, word, humps := 0, 0, 0
	for i := range len(key) {
		c := key[i]
		lower, upper := 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z'
		switch {
		case lower, upper:
			word++
			if upper && i > 0 && 'a' <= key[i-1] && key[i-1] <= 'z' {
				humps, word = humps+1, 1
			}
		case '0' <= c && c <= '9' && i > 0:
			digits++
		case c == '_' || c == '-' && i > 0:
			word = 0
		default:
			return false
		}
		if digits > maxDigits || word > maxWord || humps > maxHumps {
			return false
		}
	}
	return true
}
