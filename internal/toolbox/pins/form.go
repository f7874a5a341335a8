package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// Form is what a model reads of an item apart from its name. It is normalized
// so that two forms are equal if they mean the same: the order of members, of
// required arguments and of an enumeration's values has no meaning.
type Form struct {
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Input       json.RawMessage `json:"inputSchema,omitempty"`
	Output      json.RawMessage `json:"outputSchema,omitempty"`
	// Rest is an object of all other members: annotations, _meta, a prompt's
	// arguments.
	Rest json.RawMessage `json:"rest,omitempty"`
	// Partial means that the form was accepted by a version that did not keep
	// Rest.
	Partial bool `json:"partial,omitempty"`
}

// canonical returns the normalized form, and whether its strings contain
// invisible characters.
func (f *Form) canonical() (out Form, hidden bool) {
	out = Form{Title: f.Title, Description: f.Description}
	hidden = len(invisible.In(f.Title)) > 0 || len(invisible.In(f.Description)) > 0
	for _, s := range []struct {
		from json.RawMessage
		to   *json.RawMessage
	}{{f.Input, &out.Input}, {f.Output, &out.Output}, {f.Rest, &out.Rest}} {
		if len(s.from) == 0 {
			continue
		}
		var has bool
		*s.to, has = canonical(s.from)
		hidden = hidden || has
	}
	return out, hidden
}

func (f Form) digest() digest {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(f.Title), []byte(f.Description), f.Input, f.Output, f.Rest} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	return digest(h.Sum(nil))
}

// completes reports whether f is an accepted partial form with the members that
// that one lacks.
func (f Form) completes(accepted Form) bool {
	f.Rest = accepted.Rest
	return accepted.Partial && f.digest() == accepted.digest()
}

// Tool returns the tool of that name in this form.
func (f *Form) Tool(name string) tool.Tool {
	t, _ := tool.Parse(f.JSON(Tool, name)) // a name that was parsed before
	return t
}

// JSON returns an item of this form as its server would list it.
func (f *Form) JSON(kind Kind, name string) json.RawMessage {
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(f.Rest, &members) // empty, or an object
	for k, text := range map[string]string{"title": f.Title, "description": f.Description, kind.Key(): name} {
		if text != "" {
			members[k], _ = json.Marshal(text) // cannot fail: a string
		}
	}
	if kind == Tool {
		members["inputSchema"] = tool.AnyObject
	}
	for k, schema := range map[string]json.RawMessage{"inputSchema": f.Input, "outputSchema": f.Output} {
		if len(schema) > 0 {
			members[k] = schema
		}
	}
	raw, err := json.Marshal(members)
	if err != nil { // cannot happen: strings, and JSON that was read
		return json.RawMessage("null")
	}
	return raw
}

// canonical normalizes a schema. It keeps what is not JSON as a string.
func canonical(raw json.RawMessage) (out json.RawMessage, hidden bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		v = strings.ToValidUTF8(string(raw), "\ufffd")
	}
	v, hidden = sorted(v, "")
	out, err := json.Marshal(v)
	if err != nil { // cannot happen: it was decoded
		out = json.RawMessage(`null`)
	}
	return out, hidden
}

// sorted sorts arrays whose order has no meaning, and reports whether a string
// in the value has invisible characters. key is the member that holds the
// value.
func sorted(v any, key string) (any, bool) {
	hidden := false
	switch v := v.(type) {
	case string:
		return v, len(invisible.In(v)) > 0
	case map[string]any:
		for k, member := range v {
			m, has := sorted(member, k)
			v[k] = m
			hidden = hidden || has || len(invisible.In(k)) > 0
		}
	case []any:
		texts := make([]string, len(v))
		all := true
		for i, element := range v {
			e, has := sorted(element, "")
			v[i] = e
			hidden = hidden || has
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
	return v, hidden
}

// Diff shows people what changed between two forms, either of which may be nil.
// It escapes invisible characters.
func Diff(accepted, seen *Form) string {
	return string(diff.Diff("accepted", []byte(accepted.text()), "now", []byte(seen.text())))
}

func (f *Form) text() string {
	if f == nil {
		return ""
	}
	var b strings.Builder
	if f.Title != "" {
		b.WriteString("title: " + invisible.Line(f.Title) + "\n")
	}
	if f.Description != "" {
		b.WriteString("description:\n")
		for line := range strings.Lines(strings.TrimRight(f.Description, "\n")) {
			b.WriteString("  " + invisible.Escape(strings.TrimRight(line, "\r\n")) + "\n")
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
		b.WriteString(s.name + ":\n  " + invisible.Escape(out.String()) + "\n")
	}
	return b.String()
}
