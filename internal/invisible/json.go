package invisible

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
)

// Place says what a JSON value is, and thereby which of its strings a call
// needs unchanged.
type Place int

// The places.
const (
	// Prose means that all strings and all names of members are for reading.
	Prose Place = iota
	// Item is what a server lists: a tool, a prompt, a resource or a template
	// of resources. Its name and addresses stay.
	Item
	// Schema is a JSON Schema. Names of properties and the permitted values of
	// an argument stay.
	Schema
	// Message is the content of a prompt: addresses and data stay.
	Message
	// named holds schemas or items under names that stay.
	named
	// Exact means that nothing is removed.
	Exact
)

// StripJSON returns a JSON value without the hidden characters in the strings
// that are for reading. The order of members stays. A value without hidden
// characters is returned unchanged; one that is not JSON becomes null.
func StripJSON(raw json.RawMessage, place Place) json.RawMessage {
	if place == Exact || clean(string(raw)) && !bytes.Contains(raw, []byte(`\u`)) {
		return raw
	}
	s := stripper{in: json.NewDecoder(bytes.NewReader(raw))}
	s.in.UseNumber()
	if err := s.value(place); err != nil {
		return json.RawMessage("null")
	}
	if !s.changed {
		return raw
	}
	return s.out.Bytes()
}

type stripper struct {
	in      *json.Decoder
	out     bytes.Buffer
	changed bool
}

func (s *stripper) value(place Place) error {
	token, err := s.in.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return s.array(place)
		}
		return s.object(place)
	case string:
		return s.text(token, place != Exact)
	default:
		return s.write(token)
	}
}

func (s *stripper) array(place Place) error {
	s.out.WriteByte('[')
	for i := 0; s.in.More(); i++ {
		if i > 0 {
			s.out.WriteByte(',')
		}
		if err := s.value(place); err != nil {
			return err
		}
	}
	s.out.WriteByte(']')
	_, err := s.in.Token()
	return err
}

func (s *stripper) object(place Place) error {
	s.out.WriteByte('{')
	for i := 0; s.in.More(); i++ {
		if i > 0 {
			s.out.WriteByte(',')
		}
		token, err := s.in.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return io.ErrUnexpectedEOF
		}
		if err := s.text(key, place != Exact && place != named); err != nil {
			return err
		}
		s.out.WriteByte(':')
		if err := s.value(inside(place, key)); err != nil {
			return err
		}
	}
	s.out.WriteByte('}')
	_, err := s.in.Token()
	return err
}

// inside returns the place of a member of a value.
func inside(place Place, key string) Place {
	switch place {
	case Item:
		switch key {
		case "name", "uri", "uriTemplate", "mimeType":
			return Exact
		case "inputSchema", "outputSchema":
			return Schema
		case "arguments": // a prompt's
			return Item
		}
		return Prose
	case Schema:
		switch key {
		case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions":
			return named
		case "enum", "const", "required", "dependentRequired", "type", "$ref", "$dynamicRef",
			"$anchor", "$dynamicAnchor", "$id", "propertyName", "mapping":
			return Exact
		case "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "additionalProperties",
			"unevaluatedProperties", "propertyNames", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
			"contentSchema", "discriminator":
			return Schema
		}
		return Prose
	case Message:
		switch key {
		case "uri", "data", "blob", "mimeType", "role", "type":
			return Exact
		}
	case named:
		return Schema
	}
	return place
}

func (s *stripper) text(text string, strip bool) error {
	if strip {
		if len(In(text)) > 0 {
			s.changed = true
			text = Strip(text)
		}
	}
	return s.write(text)
}

// write writes a token unchanged, except for how it was escaped.
func (s *stripper) write(v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	s.out.WriteString(strings.TrimSuffix(b.String(), "\n"))
	return nil
}

// InJSON returns the hidden characters in all strings of a JSON value,
// including names of members.
func InJSON(raw json.RawMessage) []rune {
	if clean(string(raw)) && !bytes.Contains(raw, []byte(`\u`)) {
		return nil
	}
	var texts strings.Builder
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			break
		}
		if text, ok := token.(string); ok {
			texts.WriteString(text + "\n")
		}
	}
	return In(texts.String())
}
