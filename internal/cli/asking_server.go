package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/invisible"
)

// forPeople returns the questions that people answer.
func forPeople(all []approval.Question) []approval.Question {
	return slices.DeleteFunc(slices.Clone(all), func(q approval.Question) bool { return !q.ForPeople() })
}

// replyWith makes a reply to a server of values, NAME=VALUE each.
func replyWith(q *approval.Question, set []string) (json.RawMessage, error) {
	words := map[string][]string{}
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, errors.New("--answer takes NAME=VALUE")
		}
		words[name] = append(words[name], value)
	}
	switch {
	case !q.ForPeople():
		return nil, errors.New("the client answers this; you can only deny it")
	case len(words) > 0 && len(q.Asks.Fields) == 0:
		return nil, errors.New("the server asks for no values")
	}
	return accepted(q.Asks, words)
}

// accepted makes the reply of someone who accepts, with the values of a form.
func accepted(r *inquiry.Request, words map[string][]string) (json.RawMessage, error) {
	var out struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}
	out.Action = "accept"
	if r.URL == "" {
		content, err := r.Content(words)
		if err != nil {
			return nil, err
		}
		out.Content = content
	}
	return json.Marshal(out)
}

// filling is a form that a person fills in, field by field.
type filling struct {
	words map[string][]string // by the names of the fields
	at    int                 // the next field
}

// promptOfServer says how to answer what a server asks.
func (d *dialog) promptOfServer(q *approval.Question) string {
	if d.fill != nil {
		return d.fill.prompt(q.Asks.Fields)
	}
	accept := "a: fill in and send"
	switch {
	case q.Asks.URL != "":
		accept = "a: accept, and open the address yourself"
	case len(q.Asks.Fields) == 0:
		accept = "a: accept"
	}
	return fmt.Sprintf("  %s; d: decline; Enter: leave it open\n? ", accept)
}

// prompt asks for the next field.
func (f *filling) prompt(fields []inquiry.Field) string {
	var b strings.Builder
	field := &fields[f.at]
	fmt.Fprintf(&b, "  %d of %d, %s\n", f.at+1, len(fields), approval.FieldText(field))
	for i, o := range field.Options {
		fmt.Fprintf(&b, "    %d: %s\n", i+1, approval.OptionText(o))
	}
	says := "a value"
	switch {
	case field.Type == "array":
		says = "numbers, with commas between"
	case len(field.Options) > 0:
		says = "a number"
	}
	switch {
	case len(field.Default) > 0:
		says += "; Enter: the default, " + approval.ValueText(field.Default)
	case !field.Required:
		says += "; Enter: leave it out"
	}
	return fmt.Sprintf("%s  %s; a colon: back\n? ", b.String(), says)
}

// typed takes what was typed for the next field. The error says why that does not fit.
func (f *filling) typed(r *inquiry.Request, line string) error {
	field := r.Fields[f.at]
	if line == "" {
		if field.Required && len(field.Default) == 0 {
			return errors.New("the server requires this field")
		}
		delete(f.words, field.Name)
		f.at++
		return nil
	}
	words := []string{line}
	if field.Type == "array" {
		words = strings.Split(line, ",")
	}
	for i, w := range words {
		words[i] = strings.TrimSpace(w)
		if n, err := strconv.Atoi(words[i]); err == nil && n >= 1 && n <= len(field.Options) {
			words[i] = field.Options[n-1].Value
		}
	}
	one := *r
	one.Fields = []inquiry.Field{field}
	if _, err := one.Content(map[string][]string{field.Name: words}); err != nil {
		return err
	}
	f.words[field.Name] = words
	f.at++
	return nil
}

// answeredServer passes on what was typed to a server, and reports whether the
// question is done with.
func (d *dialog) answeredServer(q *approval.Question, line string) bool {
	a := approval.Answer{ID: q.ID, Revision: q.Revision, Choice: approval.Reply, By: byMe(d.by)}
	switch {
	case d.fill != nil && line == ":":
		d.fill = nil
		return false
	case d.fill != nil:
		if err := d.fill.typed(q.Asks, line); err != nil {
			d.say("%s.\n", invisible.Line(err.Error()))
			return false
		}
	case line == "":
		return true
	case line == "d":
		a.Choice = approval.No
		return d.send(q, a)
	case line == "a":
		d.fill = &filling{words: map[string][]string{}}
	default:
		d.say("%s: choose one of these answers.\n", printable(line))
		return false
	}
	if d.fill.at < len(q.Asks.Fields) {
		return false
	}
	var err error
	a.Result, err = accepted(q.Asks, d.fill.words)
	d.fill = nil
	if err != nil {
		d.say("%s.\n", invisible.Line(err.Error()))
		return false
	}
	return d.send(q, a)
}
