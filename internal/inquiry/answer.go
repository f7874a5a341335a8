package inquiry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Check reads a client's result, and returns the one for the server: a form's
// content has the fields of the form alone, in their types, with defaults filled in.
// An error has nothing of what a person has answered.
func (r *Request) Check(result json.RawMessage) (json.RawMessage, error) {
	if err := sound(result, maxResult); err != nil {
		return nil, fmt.Errorf("the result is %w", err)
	}
	p := read("the result", result)
	if p.err != nil {
		return nil, p.err
	}
	var checked json.RawMessage
	var err error
	switch r.Method {
	case Elicitation:
		checked, err = r.checkElicitation(p)
	case Sampling:
		checked, err = checkSampling(p)
	case Roots:
		checked, err = checkRoots(p)
	default:
		err = errors.New("no such request has a result")
	}
	if err == nil && len(checked) > maxResult {
		err = fmt.Errorf("the result is larger than %d KiB", maxResult>>10)
	}
	if err != nil {
		return nil, err
	}
	return checked, nil
}

func (r *Request) checkElicitation(p *reader) (json.RawMessage, error) {
	action := p.text("action", 32)
	switch {
	case p.err != nil:
		return nil, p.err
	case action == "decline":
		return Declined, nil
	case action == "cancel":
		return Cancelled, nil
	case action != "accept":
		return nil, errors.New("the result: action is not accept, decline or cancel")
	case r.URL != "":
		// Content would be an answer to what no form has asked.
		return json.RawMessage(`{"action":"accept"}`), nil
	}
	given := map[string]json.RawMessage{}
	if raw := p.take("content"); raw != nil {
		content := read("the content", raw)
		if content.err != nil {
			return nil, content.err
		}
		given = content.members
	}
	content, err := r.content(given)
	if err != nil {
		return nil, err
	}
	return encode(ordered{{"action", "accept"}, {"content", content}}), nil
}

// Content makes the content of a form of the words for each field that a person has
// typed: in the fields' types, with defaults filled in. An option can be given by
// its value or its title.
func (r *Request) Content(words map[string][]string) (json.RawMessage, error) {
	if r.Method != Elicitation || r.URL != "" {
		return nil, errors.New("it is not a form, and takes no values")
	}
	given := map[string]json.RawMessage{}
	for name, list := range words {
		given[name] = nil // known to be unknown below
		for _, f := range r.Fields {
			if f.Name != name {
				continue
			}
			if len(list) == 0 {
				delete(given, name)
				break
			}
			raw, ok := f.read(list)
			if !ok {
				return nil, f.refuse()
			}
			given[name] = raw
		}
	}
	return r.content(given)
}

// content checks the values of a form, and writes them in its order.
func (r *Request) content(given map[string]json.RawMessage) (json.RawMessage, error) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(r.Fields, func(f Field) bool { return f.Name == name }) {
			return nil, fmt.Errorf("the form has no field %s", label(name))
		}
	}
	content := ordered{}
	for _, f := range r.Fields {
		raw, ok := given[f.Name]
		switch {
		case ok:
			value, err := f.value(raw)
			if err != nil {
				return nil, err
			}
			content = append(content, member{f.Name, value})
		case f.Default != nil:
			content = append(content, member{f.Name, f.Default})
		case f.Required:
			return nil, fmt.Errorf("field %s is missing: it takes %s", label(f.Name), f.wants())
		}
	}
	return encode(content), nil
}

func (f *Field) refuse() error {
	return fmt.Errorf("field %s takes %s", label(f.Name), f.wants())
}

// value checks a value, and returns it as the server gets it.
func (f *Field) value(raw json.RawMessage) (json.RawMessage, error) {
	switch f.Type {
	case "string":
		s, ok := text(raw)
		if ok && f.takes(s) {
			return encode(s), nil
		}
	case "number":
		if n := json.Number(raw); finite(raw) && f.within(n) {
			return raw, nil
		}
	case "integer":
		if n, ok := integer(raw); ok && f.within(n) {
			return json.RawMessage(n), nil
		}
	case "boolean":
		if k := jsonscan.Kind(raw); k == 't' || k == 'f' {
			return raw, nil
		}
	case "array":
		p := &reader{members: map[string]json.RawMessage{"": raw}}
		list := p.textList("", maxOptions, maxOption)
		if p.err != nil || len(list) < f.MinItems || f.MaxItems > 0 && len(list) > f.MaxItems {
			return nil, f.refuse()
		}
		for i, s := range list {
			if !f.takes(s) || slices.Contains(list[:i], s) {
				return nil, f.refuse()
			}
		}
		return encode(append([]string{}, list...)), nil
	}
	return nil, f.refuse()
}

// takes reports whether a string is a value of the field, or one of its values.
func (f *Field) takes(s string) bool {
	if f.Options != nil {
		return slices.ContainsFunc(f.Options, func(o Option) bool { return o.Value == s })
	}
	n := utf8.RuneCountInString(s)
	return n >= f.MinLength && (f.MaxLength == 0 || n <= f.MaxLength) && hasFormat(f.Format, s)
}

// within reports whether a number is in the range. It is exact up to 2^53, which is
// enough to help a person: the server checks again.
func (f *Field) within(n json.Number) bool {
	return (f.Minimum == "" || float(n) >= float(f.Minimum)) && (f.Maximum == "" || float(n) <= float(f.Maximum))
}

// hasFormat finds mistakes of a person who types, not each string that a standard
// forbids.
func hasFormat(format, s string) bool {
	switch format {
	case "email":
		at := strings.LastIndexByte(s, '@')
		return at > 0 && at < len(s)-1 && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	case "uri":
		u, err := url.Parse(s)
		return err == nil && u.Scheme != "" && !strings.ContainsFunc(s, unicode.IsSpace)
	case "date":
		_, err := time.Parse(time.DateOnly, s)
		return err == nil
	case "date-time":
		_, err := time.Parse(time.RFC3339, strings.ToUpper(s))
		return err == nil
	}
	return true
}

// wants says what the field takes.
func (f *Field) wants() string {
	if f.Options != nil {
		return f.wantsOptions()
	}
	switch f.Type {
	case "boolean":
		return "true or false"
	case "number":
		return "a number" + between(string(f.Minimum), string(f.Maximum))
	case "integer":
		return "a whole number" + between(string(f.Minimum), string(f.Maximum))
	}
	what := "a string"
	switch f.Format {
	case "email":
		what = "an email address"
	case "uri":
		what = "a URI"
	case "date":
		what = "a date such as 2026-01-31"
	case "date-time":
		what = "a date and time such as 2026-01-31T12:00:00Z"
	}
	if f.MinLength > 0 || f.MaxLength > 0 {
		what += " of " + counted(f.MinLength, f.MaxLength) + " characters"
	}
	return what
}

func (f *Field) wantsOptions() string {
	const most = 10
	var values []string
	for _, o := range f.Options[:min(most, len(f.Options))] {
		values = append(values, label(o.Value))
	}
	all := strings.Join(values, ", ")
	if n := len(f.Options) - len(values); n > 0 {
		all += fmt.Sprintf(" and %d more", n)
	}
	if f.Type == "array" {
		return counted(f.MinItems, f.MaxItems) + " different values of " + all
	}
	return "one of " + all
}

func counted(least, most int) string {
	switch {
	case least > 0 && least == most:
		return fmt.Sprint(least)
	case least > 0 && most > 0:
		return fmt.Sprintf("%d to %d", least, most)
	case least > 0:
		return fmt.Sprintf("at least %d", least)
	case most > 0:
		return fmt.Sprintf("at most %d", most)
	}
	return "any"
}

func between(least, most string) string {
	switch {
	case least != "" && most != "":
		return " from " + least + " to " + most
	case least != "":
		return " of at least " + least
	case most != "":
		return " of at most " + most
	}
	return ""
}

// read makes a value of words.
func (f *Field) read(words []string) (json.RawMessage, bool) {
	if f.Type == "array" {
		values := []string{}
		if len(words) == 1 && words[0] == "" && !f.takes("") {
			words = nil // NAME= gives no value
		}
		for _, word := range words {
			values = append(values, f.option(word))
		}
		return encode(values), true
	}
	if len(words) != 1 {
		return nil, false
	}
	word := words[0]
	switch f.Type {
	case "string":
		if f.Options != nil {
			word = f.option(word)
		}
		return encode(word), true
	case "boolean":
		switch strings.ToLower(word) {
		case "true", "yes":
			return json.RawMessage("true"), true
		case "false", "no":
			return json.RawMessage("false"), true
		}
		return nil, false
	}
	word = strings.TrimSpace(word)
	return json.RawMessage(word), jsonscan.Valid([]byte(word))
}

// option returns the value that a word stands for: a value, a title, or the only
// one of both that differs in case alone. Without one, the word remains.
func (f *Field) option(word string) string {
	var found []string
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, strings.EqualFold} {
		for _, o := range f.Options {
			if o.Value == word {
				return word
			}
			if same(o.Value, word) || o.Title != "" && (same(o.Title, word) || same(invisible.Line(o.Title), word)) {
				found = append(found, o.Value)
			}
		}
		if len(found) == 1 {
			return found[0]
		}
		found = nil
	}
	return word
}
