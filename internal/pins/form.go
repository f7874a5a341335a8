package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"sallyport/internal/hidden"
)

// Form is what a model reads of an item, so written that two forms are equal
// when they say the same: the order of members, of required arguments and of
// an enumeration's values says nothing.
type Form struct {
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"inputSchema,omitempty"`
	Output      json.RawMessage `json:"outputSchema,omitempty"`
	// Rest is an object of all other members: annotations, _meta, a prompt's
	// arguments.
	Rest json.RawMessage `json:"rest,omitempty"`
	// Partial: it was accepted by a version that did not keep Rest.
	Partial bool `json:"partial,omitempty"`
}

// form makes a Form, and says whether its texts hold hidden characters.
func form(it *Item) (f Form, secret bool) {
	f = Form{Title: it.Title, Description: it.Description}
	secret = len(hidden.In(it.Title)) > 0 || len(hidden.In(it.Description)) > 0
	for _, s := range []struct {
		from json.RawMessage
		to   *json.RawMessage
	}{{it.InputSchema, &f.Input}, {it.OutputSchema, &f.Output}, {it.Rest, &f.Rest}} {
		if len(s.from) == 0 {
			continue
		}
		var has bool
		*s.to, has = canonical(s.from)
		secret = secret || has
	}
	return f, secret
}

func (f Form) digest() digest {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(f.Title), []byte(f.Description), f.Input, f.Output, f.Rest} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	return digest(h.Sum(nil))
}

// completes says that f is an accepted partial form with what that lacked.
func (f Form) completes(accepted Form) bool {
	f.Rest = accepted.Rest
	return accepted.Partial && f.digest() == accepted.digest()
}

// JSON is an item of this form as a server lists it. key is the member that
// names it.
func (f *Form) JSON(key, name string) json.RawMessage {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(f.Rest, &members) // empty, or an object
	for k, text := range map[string]string{"title": f.Title, "description": f.Description, key: name} {
		if text != "" {
			members[k], _ = json.Marshal(text) // a string
		}
	}
	for k, schema := range map[string]json.RawMessage{"inputSchema": f.Input, "outputSchema": f.Output} {
		if len(schema) > 0 {
			members[k] = schema
		}
	}
	raw, err := json.Marshal(members)
	if err != nil { // cannot happen: texts, and JSON that was read
		return json.RawMessage("null")
	}
	return raw
}

// canonical writes a schema in one order. What is no JSON is kept as a string.
func canonical(raw json.RawMessage) (out json.RawMessage, secret bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		v = strings.ToValidUTF8(string(raw), "\ufffd")
	}
	v, secret = sorted(v, "")
	out, err := json.Marshal(v)
	if err != nil { // cannot happen: it was decoded
		out = json.RawMessage(`null`)
	}
	return out, secret
}

// sorted puts in order what has none. key is where the value stands.
func sorted(v any, key string) (any, bool) {
	secret := false
	switch v := v.(type) {
	case string:
		return v, len(hidden.In(v)) > 0
	case map[string]any:
		for k, member := range v {
			m, has := sorted(member, k)
			v[k] = m
			secret = secret || has || len(hidden.In(k)) > 0
		}
	case []any:
		texts := make([]string, len(v))
		all := true
		for i, element := range v {
			e, has := sorted(element, "")
			v[i] = e
			secret = secret || has
			var text bool
			texts[i], text = e.(string)
			all = all && text
		}
		if all && (key == "required" || key == "enum") {
			slices.Sort(texts)
			for i, t := range texts {
				v[i] = t
			}
		}
	}
	return v, secret
}

// Diff shows what changed between two forms, of which either may be nil, for
// people: what would not be seen is escaped.
func Diff(accepted, seen *Form) string {
	return string(diff.Diff("accepted", []byte(accepted.text()), "now", []byte(seen.text())))
}

func (f *Form) text() string {
	if f == nil {
		return ""
	}
	var b strings.Builder
	if f.Title != "" {
		b.WriteString("title: " + hidden.Line(f.Title) + "\n")
	}
	if f.Description != "" {
		b.WriteString("description:\n")
		for line := range strings.Lines(strings.TrimRight(f.Description, "\n")) {
			b.WriteString("  " + hidden.Escape(strings.TrimRight(line, "\r\n")) + "\n")
		}
	}
	for _, s := range []struct {
		name string
		raw  json.RawMessage
	}{{"input schema", f.Input}, {"output schema", f.Output}, {"other members", f.Rest}} {
		if len(s.raw) == 0 {
			continue
		}
		var out bytes.Buffer
		if json.Indent(&out, s.raw, "  ", "  ") != nil {
			continue
		}
		b.WriteString(s.name + ":\n  " + hidden.Escape(out.String()) + "\n")
	}
	return b.String()
}
