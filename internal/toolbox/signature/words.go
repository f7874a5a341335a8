package signature

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// FromWords returns the arguments that the words of a command line give to a tool
// with this input schema. A word is key=value, whose type is the schema's,
// key:=JSON, or key=@file, which read reads; key.member=value gives a member of an
// object, and a key that is given twice an array. A word that is a JSON object, or
// @file with one, gives several.
func FromWords(schema json.RawMessage, words []string, read func(file string) ([]byte, error)) (json.RawMessage, error) {
	r := &reader{writer: &writer{document: schema}, read: read}
	all := r.part(schema)
	given := map[string]any{}
	for _, word := range words {
		if err := r.word(all, given, word); err != nil {
			return nil, err
		}
	}
	for _, a := range all.arguments {
		if _, ok := given[a.Name]; a.Required && !ok {
			return nil, fmt.Errorf("%s is missing: %s", invisible.Line(a.Name), r.explain(&a))
		}
	}
	return encode(given)
}

// Written is a key that a command line may give, as completion offers it.
type Written struct {
	Key, Description string
	Values           []string // those that it may have, if they are few
}

// Keys returns the keys of FromWords.
func Keys(schema json.RawMessage) []Written {
	r := &reader{writer: &writer{document: schema}}
	var out []Written
	for _, a := range r.part(schema).arguments {
		w := Written{Key: a.Name, Description: a.Description}
		f := r.form(a.schema, 0)
		for _, v := range f.values {
			w.Values = append(w.Values, plain(v))
		}
		if f.values == nil && slices.Equal(f.types, []string{"boolean"}) {
			w.Values = []string{"true", "false"}
		}
		out = append(out, w)
	}
	return out
}

// reader reads words by a schema.
type reader struct {
	*writer
	read func(file string) ([]byte, error)
}

// part is a schema of an object.
type part struct {
	arguments []Argument
	open      bool // it may have other members
}

func (r *reader) part(schema json.RawMessage) part {
	g := gatherer{writer: r.writer, index: map[string]int{}}
	g.gather(schema, true)
	p := part{arguments: inOrder(g.found, g.required)}
	additional := parse(schema).additional
	p.open = additional != nil && jsonscan.Kind(additional) != 'f' || additional == nil && len(p.arguments) == 0
	return p
}

// find returns the argument of a key.
func (p *part) find(key string) *Argument {
	for i := range p.arguments {
		if p.arguments[i].Name == key {
			return &p.arguments[i]
		}
	}
	written := slices.Clone(p.arguments)
	writeNames(written)
	for i := range written {
		if written[i].Written == key {
			return &p.arguments[i]
		}
	}
	return nil
}

// word takes over what a word gives.
func (r *reader) word(p part, given map[string]any, word string) error {
	if strings.HasPrefix(word, "{") || strings.HasPrefix(word, "@") {
		return r.object(given, word)
	}
	key, value, ok := strings.Cut(word, "=")
	raw := strings.HasSuffix(key, ":")
	key = strings.TrimSuffix(key, ":")
	if !ok || key == "" {
		return fmt.Errorf("%q gives no argument: write key=value%s", word, p.keys(""))
	}
	var file string
	if file, ok = strings.CutPrefix(value, "@"); ok {
		data, err := r.read(file)
		if err != nil {
			return fmt.Errorf("%s: %w; for the text itself, write %s:='%s'", key, err, key, quoted(value))
		}
		if !utf8.Valid(data) {
			return fmt.Errorf("%s: %s is not UTF-8 text", key, file)
		}
		value = string(data)
	}
	return r.set(p, given, key, func(a *Argument) (json.RawMessage, error) {
		if raw {
			if !jsonscan.Valid([]byte(value)) || !utf8.ValidString(value) {
				return nil, fmt.Errorf("%s: what follows := is not valid JSON", key)
			}
			return json.RawMessage(value), nil
		}
		var schema json.RawMessage
		if a != nil {
			schema = a.schema
		}
		v, err := r.value(schema, value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		return v, nil
	})
}

// object takes over the members of a whole object.
func (r *reader) object(given map[string]any, word string) error {
	data := []byte(word)
	if file, ok := strings.CutPrefix(word, "@"); ok {
		var err error
		if data, err = r.read(file); err != nil {
			return err
		}
	}
	if !utf8.Valid(data) || !jsonscan.Valid(data) || jsonscan.Kind(data) != '{' {
		return errors.New("the arguments are not a JSON object, such as '{\"path\": \"/tmp\"}'")
	}
	var twice error
	err := jsonscan.Members(data, func(key string, value json.RawMessage) bool {
		if _, again := given[key]; again {
			twice = fmt.Errorf("%s is given twice", invisible.Line(key))
		}
		given[key] = value
		return twice == nil
	})
	return cmp.Or(twice, err)
}

// set sets what a key, or a dotted one, means. make makes the value.
func (r *reader) set(p part, given map[string]any, key string, make func(*Argument) (json.RawMessage, error)) error {
	a := p.find(key)
	if first, rest, dotted := strings.Cut(key, "."); a == nil && dotted && rest != "" {
		if outer := p.find(first); outer != nil {
			inner, ok := given[outer.Name].(map[string]any)
			switch f := r.form(outer.schema, 0); {
			case f.types != nil && !f.has("object"):
				return fmt.Errorf("%s has no members: it is %s", first, f.text())
			case !ok && given[outer.Name] != nil:
				return fmt.Errorf("%s is given twice", first)
			case !ok:
				inner = map[string]any{}
				given[outer.Name] = inner
			}
			return r.set(r.part(r.resolve(outer.schema)), inner, rest, make)
		}
	}
	if a == nil && !p.open {
		return fmt.Errorf("there is no argument %s%s", invisible.Line(key), p.keys(key))
	}
	name := key
	if a != nil {
		name = a.Name
	}
	value, err := make(a)
	if err != nil {
		return err
	}
	before, again := given[name]
	if !again {
		given[name] = value
		return nil
	}
	first, ok := before.(json.RawMessage)
	if !ok || jsonscan.Kind(first) != '[' || jsonscan.Kind(value) != '[' || a == nil || !r.form(a.schema, 0).has("array") {
		return fmt.Errorf("%s is given twice", invisible.Line(key))
	}
	var all []json.RawMessage
	elements(first, func(v json.RawMessage) { all = append(all, v) })
	elements(value, func(v json.RawMessage) { all = append(all, v) })
	given[name], err = encode(all)
	return err
}

// keys names the nearest argument, and all.
func (p *part) keys(wanted string) string {
	if len(p.arguments) == 0 {
		return " (it takes none)"
	}
	names := make([]string, 0, len(p.arguments))
	for _, a := range p.arguments {
		names = append(names, a.Name)
	}
	near := func(name string) bool {
		a, b := strings.ToLower(name), strings.ToLower(wanted)
		within := min(len(a), len(b)) > 2 && (strings.Contains(a, b) || strings.Contains(b, a))
		return within || off(a, b) <= min(2, len(b)/2)
	}
	text := ""
	if i := slices.IndexFunc(names, near); i >= 0 {
		text = "; did you mean " + names[i] + "?"
	}
	const most = 20
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	return invisible.Line(text) + " " + invisible.Line("(arguments: "+strings.Join(names, ", ")+more+")")
}

// off returns about how many letters differ.
func off(a, b string) int {
	if len(a) > 60 || len(b) > 60 {
		return 60
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := min(row[j], row[j+1], last) + 1
			if a[i] == b[j] {
				next = last
			}
			last, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// explain says what an argument is.
func (r *reader) explain(a *Argument) string {
	text := invisible.Line(a.Name) + "=" + strings.ToUpper(strings.ReplaceAll(r.form(a.schema, 0).text(), " ", "_"))
	if a.Description != "" {
		text += ", " + invisible.Line(a.Description)
	}
	return text
}

// form is what a value may be. Without types it may be anything.
type form struct {
	types  []string
	values []json.RawMessage
	items  json.RawMessage
}

func (f form) has(name string) bool { return f.types == nil || slices.Contains(f.types, name) }

func (f form) text() string {
	if len(f.values) > 0 {
		all := make([]string, len(f.values))
		for i, v := range f.values {
			all[i] = plain(v)
		}
		return "one of " + invisible.Line(strings.Join(all, ", "))
	}
	if len(f.types) == 0 {
		return "value"
	}
	return invisible.Line(strings.Join(f.types, " or "))
}

// form returns what a schema allows, as far as it says so plainly.
func (r *reader) form(raw json.RawMessage, depth int) form {
	if r.nodes++; r.nodes > maxNodes || depth > maxDepth {
		return form{}
	}
	s := parse(raw)
	if s.ref != nil {
		return r.form(r.follow(s.ref), depth+1)
	}
	f := form{types: s.types, items: s.items}
	if s.enumerated && !s.tooManyValues {
		f.values = s.values
		if len(f.types) == 0 {
			for _, v := range s.values {
				f.types = append(f.types, kindName(v))
			}
		}
	}
	parts := s.options
	if len(parts) == 0 {
		parts = s.all
	}
	if len(f.types) > 0 || len(parts) == 0 {
		switch {
		case len(f.types) > 0:
		case s.properties != nil:
			f.types = []string{"object"}
		case s.items != nil:
			f.types = []string{"array"}
		}
	} else if !s.tooManyOptions {
		whole := true // each part says its values
		for _, one := range parts {
			o := r.form(one, depth+1)
			if o.types == nil {
				if len(s.options) > 0 {
					return form{}
				}
				continue
			}
			if whole = whole && o.values != nil; whole {
				f.values = append(f.values, o.values...)
			}
			f.types = append(f.types, o.types...)
			if f.items == nil {
				f.items = o.items
			}
		}
		if !whole {
			f.values = nil
		}
	}
	if s.nullable && f.types != nil && f.values == nil {
		f.types = append(slices.Clone(f.types), "null")
	}
	slices.Sort(f.types)
	f.types = slices.Compact(f.types)
	return f
}

func kindName(v json.RawMessage) string {
	switch jsonscan.Kind(v) {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// value returns the JSON of a string from the command line. What may be a string is
// one unless it may be, and is, something else.
func (r *reader) value(schema json.RawMessage, text string) (json.RawMessage, error) {
	f := r.form(schema, 0)
	if !utf8.ValidString(text) {
		return nil, errors.New("it is not UTF-8 text")
	}
	if f.values != nil {
		for _, v := range f.values {
			if plain(v) == text {
				return v, nil
			}
		}
		return nil, fmt.Errorf("%q is not %s", clip(text), f.text())
	}
	trimmed := strings.TrimSpace(text)
	valid := jsonscan.Valid([]byte(trimmed))
	if valid {
		kind := kindName(json.RawMessage(trimmed))
		number := kind == "number" && f.types != nil && !slices.Contains(f.types, "number")
		switch {
		case kind == "string":
		case number && f.has("integer") && !strings.ContainsAny(trimmed, ".eE"), !number && f.has(kind):
			return json.RawMessage(trimmed), nil
		}
	}
	switch {
	case f.has("string"):
		return encode(text)
	case f.has("array") && !strings.HasPrefix(trimmed, "["):
		one, err := r.value(f.items, text)
		if err != nil {
			return nil, err
		}
		return encode([]json.RawMessage{one})
	case !valid && (f.has("array") && strings.HasPrefix(trimmed, "[") || f.has("object") && strings.HasPrefix(trimmed, "{")):
		return nil, errors.New("it is not valid JSON")
	}
	return nil, fmt.Errorf("%q is no %s", clip(text), f.text())
}

// plain is a value as a word has it.
func plain(v json.RawMessage) string {
	if s, ok := str(v); ok {
		return s
	}
	return string(v)
}

func clip(text string) string {
	const most = 60
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

func quoted(text string) string {
	b, _ := encode(text)
	return string(b)
}

// encode is json.Marshal, with <, > and & as they are.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
