package inquiry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

const (
	maxFields  = 64
	maxName    = 128
	maxTitle   = 2 << 10 // of a description, too
	maxOptions = 500
	maxOption  = 1 << 10
)

// A schema describes a form, as a client reads it.
type schema struct {
	Type       string   `json:"type"`
	Properties ordered  `json:"properties"`
	Required   []string `json:"required,omitempty"`
}

type property struct {
	Type        string          `json:"type"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Format      string          `json:"format,omitempty"`
	MinLength   int             `json:"minLength,omitempty"`
	MaxLength   int             `json:"maxLength,omitempty"`
	Minimum     json.Number     `json:"minimum,omitempty"`
	Maximum     json.Number     `json:"maximum,omitempty"`
	Enum        []string        `json:"enum,omitempty"`
	EnumNames   []string        `json:"enumNames,omitempty"`
	OneOf       []constant      `json:"oneOf,omitempty"`
	MinItems    int             `json:"minItems,omitempty"`
	MaxItems    int             `json:"maxItems,omitempty"`
	Items       *items          `json:"items,omitempty"`
	Default     json.RawMessage `json:"default,omitempty"`
}

type items struct {
	Type  string     `json:"type,omitempty"`
	Enum  []string   `json:"enum,omitempty"`
	AnyOf []constant `json:"anyOf,omitempty"`
}

type constant struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// foreign are the words of JSON Schema that change what a form is. A form without
// them would not be the one that the server asks with. Other words are dropped, also
// those with which schema generators narrow a value, such as pattern: the server
// compares the answer with them itself.
var foreign = []string{
	"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "const", "enum", "enumNames", "contentEncoding", "contentSchema",
	"properties", "patternProperties", "propertyNames", "minProperties", "dependentRequired", "dependentSchemas",
	"dependencies", "items", "prefixItems", "contains",
}

// refuseForeign fails if there are words of foreign that have not been taken.
func (r *reader) refuseForeign() {
	for _, word := range foreign {
		if r.has(word) {
			r.fail("%s cannot be part of a form", word)
		}
	}
}

// readForm reads the schema of a form. Some servers have none to ask for a plain
// yes or no.
func readForm(raw json.RawMessage) ([]Field, error) {
	if raw == nil {
		return nil, nil
	}
	s := read("requestedSchema", raw)
	if s.text("type", 32) != "object" {
		s.fail("type is not object")
	}
	properties := s.take("properties")
	required := s.textList("required", maxFields, maxName)
	s.refuseForeign()
	if s.err != nil {
		return nil, s.err
	}
	var fields []Field
	if properties != nil {
		var failure error
		err := jsonscan.Members(properties, func(name string, raw json.RawMessage) bool {
			var f Field
			f, failure = readField(name, raw)
			if failure == nil && slices.ContainsFunc(fields, func(f Field) bool { return f.Name == name }) {
				failure = fmt.Errorf("field %s is given twice", label(name))
			}
			if failure == nil && len(fields) == maxFields {
				failure = fmt.Errorf("the form has more than %d fields", maxFields)
			}
			fields = append(fields, f)
			return failure == nil
		})
		if failure != nil {
			return nil, failure
		}
		if err != nil {
			return nil, errors.New("requestedSchema: properties are not an object")
		}
	}
	for _, name := range required {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("required field %s is not a property", label(name))
		}
		fields[i].Required = true
	}
	return fields, nil
}

func readField(name string, raw json.RawMessage) (Field, error) {
	if name == "" || len(name) > maxName || !plain(name) {
		return Field{}, fmt.Errorf("field %s: its name is empty, longer than %d bytes or has hidden characters", label(name), maxName)
	}
	p := read("field "+label(name), raw)
	p.withoutNull()
	f := Field{
		Name: name, Title: p.text("title", maxTitle), Description: p.text("description", maxTitle),
		Type: p.text("type", 32),
	}
	if f.Type == "" && (p.has("enum") || p.has("oneOf")) {
		f.Type = "string"
	}
	switch f.Type {
	case "string":
		if only := p.text("const", maxOption); only != "" { // generators write an enum of one like that
			f.Options = []Option{{Value: only}}
			break
		}
		if p.has("enum") || p.has("oneOf") {
			f.readOptions(p, "oneOf")
			break // the options say more than a length or a format
		}
		switch format := p.text("format", 64); format {
		case "email", "uri", "date", "date-time":
			f.Format = format
		}
		f.MinLength, f.MaxLength = p.count("minLength"), p.count("maxLength")
		if f.MaxLength > 0 && f.MinLength > f.MaxLength {
			p.fail("minLength is larger than maxLength")
		}
	case "number", "integer":
		f.Minimum, f.Maximum = p.number("minimum"), p.number("maximum")
		if f.Minimum != "" && f.Maximum != "" && float(f.Minimum) > float(f.Maximum) {
			p.fail("minimum is larger than maximum")
		}
	case "boolean":
	case "array":
		f.MinItems, f.MaxItems = p.count("minItems"), p.count("maxItems")
		if f.MaxItems > 0 && f.MinItems > f.MaxItems {
			p.fail("minItems is larger than maxItems")
		}
		of := read(p.what+": items", p.take("items"))
		if kind := of.text("type", 32); kind != "" && kind != "string" {
			of.fail("type is not string")
		}
		f.readOptions(of, "anyOf")
		of.refuseForeign()
		if p.err == nil {
			p.err = of.err
		}
		if f.MinItems > len(f.Options) {
			p.fail("minItems is larger than the number of options")
		}
	default:
		p.fail("type is not string, number, integer, boolean or array")
	}
	raw = p.take("default")
	p.refuseForeign()
	if p.err != nil {
		return Field{}, p.err
	}
	if raw != nil {
		// A default that the field itself does not take is dropped: it would be an
		// answer that no one has given and the server must refuse. The form is of use
		// without it.
		f.Default, _ = f.value(raw)
		if s, is := text(f.Default); is && !plain(s) { // a person could not see what is sent
			f.Default = nil
		}
	}
	return f, nil
}

// withoutNull turns what generators of schemas write for a value that may be
// missing into the schema of the value.
func (r *reader) withoutNull() {
	if r.err != nil {
		return
	}
	one := func(name string, isNull func(json.RawMessage) bool) json.RawMessage {
		var rest []json.RawMessage
		n := 0
		_ = jsonscan.Elements(r.members[name], func(value json.RawMessage) bool {
			if n++; !isNull(value) {
				rest = append(rest, value)
			}
			return n <= 2
		})
		if n != 2 || len(rest) != 1 {
			return nil
		}
		return rest[0]
	}
	isNull := func(raw json.RawMessage) bool { s, _ := text(raw); return s == "null" }
	if kind := one("type", isNull); kind != nil {
		r.members["type"] = kind
	}
	inner := one("anyOf", func(raw json.RawMessage) bool {
		s := read("", raw)
		return s.err == nil && len(s.members) == 1 && isNull(s.members["type"])
	})
	if inner == nil {
		return
	}
	s := read(r.what, inner)
	if s.err != nil {
		r.err = s.err
		return
	}
	delete(r.members, "anyOf")
	for name, value := range s.members {
		if !r.has(name) {
			r.members[name] = value
		}
	}
}

// readOptions reads the only values of a field: an enum, with or without names, or
// constants with titles.
func (f *Field) readOptions(p *reader, constants string) {
	hasEnum := p.has("enum")
	values, names := p.textList("enum", maxOptions, maxOption), p.textList("enumNames", maxOptions, maxTitle)
	list := p.list(constants, maxOptions)
	switch {
	case p.err != nil:
		return
	case hasEnum && list != nil:
		p.fail("enum and %s are two lists of values", constants)
	case names != nil && len(names) != len(values):
		p.fail("enum and enumNames differ in length")
	case len(values)+len(list) == 0:
		p.fail("it has no values to choose from")
	}
	if p.err != nil {
		return
	}
	for i, value := range values {
		o := Option{Value: value}
		if names != nil {
			o.Title = names[i]
		}
		f.Options = append(f.Options, o)
	}
	for _, raw := range list {
		c := read(p.what+": "+constants, raw)
		if !c.has("const") {
			c.fail("const is missing")
		}
		f.Options = append(f.Options, Option{Value: c.text("const", maxOption), Title: c.text("title", maxTitle)})
		c.refuseForeign()
		if c.err != nil {
			p.err = c.err
			return
		}
	}
	known := map[string]bool{}
	for _, o := range f.Options {
		if known[o.Value] || !plain(o.Value) {
			p.fail("a value is given twice or has hidden characters")
		}
		known[o.Value] = true
	}
	for i, o := range f.Options {
		switch {
		case o.Title == o.Value:
			f.Options[i].Title = ""
		case known[o.Title] && o.Title != "":
			// Whoever reads titles and whoever reads values would choose differently.
			p.fail("the title of a value is another value")
		case o.Title != "":
			f.named = names != nil
		}
	}
}

// formOf writes the schema of a form. What is for reading passes through shown.
func formOf(fields []Field, shown func(string) string) *schema {
	s := &schema{Type: "object"}
	for _, f := range fields {
		p := property{
			Type: f.Type, Title: shown(f.Title), Description: shown(f.Description), Format: f.Format,
			MinLength: f.MinLength, MaxLength: f.MaxLength, Minimum: f.Minimum, Maximum: f.Maximum,
			MinItems: f.MinItems, MaxItems: f.MaxItems, Default: f.Default,
		}
		var values, titles []string
		var constants []constant
		titled := false
		for _, o := range f.Options {
			title := o.Title
			if title == "" {
				title = o.Value
			} else {
				titled = true
			}
			title = shown(title)
			values, titles = append(values, o.Value), append(titles, title)
			constants = append(constants, constant{o.Value, title})
		}
		switch {
		case f.Options == nil:
		case !titled:
			constants, titles = nil, nil
		case f.named:
			constants = nil
		default:
			values, titles = nil, nil
		}
		if f.Type == "array" {
			p.Items = &items{Enum: values, AnyOf: constants}
			if values != nil {
				p.Items.Type = "string"
			}
		} else {
			p.Enum, p.EnumNames, p.OneOf = values, titles, constants
		}
		s.Properties = append(s.Properties, member{f.Name, p})
		if f.Required {
			s.Required = append(s.Required, f.Name)
		}
	}
	return s
}
