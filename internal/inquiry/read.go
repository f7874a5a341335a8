package inquiry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// reader takes the members of a JSON object one by one, and keeps the first error.
// A null is as good as no member: some servers write one for what they leave out.
type reader struct {
	what    string // is read, for errors; empty: the parameters
	members map[string]json.RawMessage
	err     error
}

func read(what string, raw json.RawMessage) *reader {
	r := &reader{what: what, members: map[string]json.RawMessage{}}
	err := jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
		if _, twice := r.members[key]; twice {
			r.fail("%s is given twice", label(key))
			return false
		}
		r.members[key] = value
		return true
	})
	if err != nil {
		r.fail("not a JSON object")
	}
	for key, value := range r.members {
		if jsonscan.Kind(value) == 'n' {
			delete(r.members, key)
		}
	}
	return r
}

func (r *reader) fail(format string, args ...any) {
	if r.err != nil {
		return
	}
	r.err = fmt.Errorf(format, args...)
	if r.what != "" {
		r.err = fmt.Errorf("%s: %w", r.what, r.err)
	}
}

func (r *reader) has(name string) bool {
	_, ok := r.members[name]
	return ok
}

// take returns a member, nil if it is missing.
func (r *reader) take(name string) json.RawMessage {
	raw := r.members[name]
	delete(r.members, name)
	return raw
}

// text takes a string of at most that many bytes.
func (r *reader) text(name string, most int) string {
	raw := r.take(name)
	if raw == nil {
		return ""
	}
	s, ok := text(raw)
	switch {
	case !ok:
		r.fail("%s is not a string", name)
	case len(s) > most:
		r.fail("%s is longer than %d bytes", name, most)
	}
	return s
}

// list takes an array of at most that many elements, nil if it is missing.
func (r *reader) list(name string, most int) []json.RawMessage {
	raw := r.take(name)
	if raw == nil {
		return nil
	}
	list := []json.RawMessage{}
	err := jsonscan.Elements(raw, func(value json.RawMessage) bool {
		list = append(list, value)
		return len(list) <= most
	})
	switch {
	case err != nil:
		r.fail("%s is not an array", name)
	case len(list) > most:
		r.fail("%s has more than %d elements", name, most)
	}
	return list
}

// textList takes an array of at most that many strings, of at most that many bytes
// each.
func (r *reader) textList(name string, most, mostBytes int) []string {
	var found []string
	for _, raw := range r.list(name, most) {
		s, ok := text(raw)
		switch {
		case !ok:
			r.fail("%s has something other than strings", name)
		case len(s) > mostBytes:
			r.fail("%s has a string longer than %d bytes", name, mostBytes)
		}
		found = append(found, s)
	}
	return found
}

// number takes a number, as it is written.
func (r *reader) number(name string) json.Number {
	raw := r.take(name)
	if raw == nil {
		return ""
	}
	if !finite(raw) {
		r.fail("%s is not a number within the usual range", name)
		return ""
	}
	return json.Number(raw)
}

// count takes a whole number that is not negative, at most 2^30: more is no
// limit.
func (r *reader) count(name string) int {
	raw := r.take(name)
	if raw == nil {
		return 0
	}
	n, ok := whole(raw, 1<<30)
	if !ok || n < 0 {
		r.fail("%s is not a whole number from 0", name)
	}
	return n
}

// text decodes a string.
func text(raw json.RawMessage) (string, bool) {
	if jsonscan.Kind(raw) != '"' {
		return "", false
	}
	return jsonscan.Unquote(raw)
}

// finite reports whether raw is a number that every JSON library can read.
func finite(raw json.RawMessage) bool {
	if k := jsonscan.Kind(raw); k != '-' && (k < '0' || k > '9') || len(raw) > 64 {
		return false
	}
	_, err := strconv.ParseFloat(string(raw), 64)
	return err == nil
}

// integer returns a number without fraction and exponent, if it has no fraction:
// some clients write 3.0.
func integer(raw json.RawMessage) (json.Number, bool) {
	if !finite(raw) {
		return "", false
	}
	if !bytes.ContainsAny(raw, ".eE") {
		return json.Number(raw), true
	}
	key := jsonscan.NumberKey(raw)
	return json.Number(key), !strings.ContainsAny(key, ".eE")
}

// whole is an integer of at least -1 and at most most: what is beyond becomes that.
func whole(raw json.RawMessage, most int) (int, bool) {
	if finite(raw) && float(json.Number(raw)) > float64(most) {
		return most, true
	}
	text, ok := integer(raw)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return -1, true // below all that fits
	}
	return max(n, -1), true
}

// float is the value of a checked number.
func float(n json.Number) float64 {
	f, _ := n.Float64()
	return f
}

// plain reports whether a person sees all of a string, on one line.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) && len(invisible.In(s)) == 0
}

// label is a name of someone else's for an error: on one line, cut, in quotes.
func label(s string) string {
	const most = 128
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(invisible.Line(s))
}

// encode writes JSON without escapes that only HTML needs: they would make a
// request larger than it came.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil // only values that Parse or Check have not seen
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// ordered is a JSON object with the members in this order.
type ordered []member

type member struct {
	name  string
	value any
}

func (o ordered) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, encode(m.name)...), ':')
		b = append(b, encode(m.value)...)
	}
	return append(b, '}'), nil
}
