// Package signature writes a tool's JSON Schema as a signature in Python's
// notation: names, types, defaults, required arguments first. A model reads it in
// a tenth of the schema's tokens. It is the only writer of signatures: the sandbox
// receives the text, and binds arguments by the names in it.
//
// Servers send schemas of any size, cyclic and contradictory. What takes too much
// room is left out or written less exactly; the schema itself remains available.
package signature

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Bounds of what is read and written, whatever a schema holds.
const (
	maxArguments = 200  // of one tool
	maxNodes     = 3000 // schemas looked at for one signature
	maxDepth     = 24   // references and nesting followed
	maxWhole     = 4000 // characters of a whole signature
)

// Whole returns the signature with everything: objects with their properties, all
// values of enumerations that are not long, and what is returned where the
// server says so. Documentation, the sandbox's help and its errors show this text.
func Whole(input, output json.RawMessage) string {
	return whole(Arguments(input), input, output)
}

// Sandbox returns what a sandbox shows and binds a tool's arguments by: its whole
// signature, and how a call writes the arguments whose names are not identifiers.
func Sandbox(input, output json.RawMessage) (text string, renamed map[string]string) {
	arguments := Arguments(input)
	return whole(arguments, input, output), Renamed(arguments)
}

func whole(arguments []Argument, input, output json.RawMessage) string {
	w := writer{document: input, values: 12, valueText: 200, defaultText: 80, nested: 2, room: 1000}
	text := w.parameters(arguments, maxWhole, maxWhole)
	out := writer{document: output, values: 8, valueText: 80, nested: 2, room: 600}
	return text + out.arrow()
}

// Brief returns the signature for a list: the required arguments, as many of the
// others as about sixty characters hold, and what is returned, one level deep.
// "..." stands for the rest.
func Brief(input, output json.RawMessage) string {
	w := writer{document: input, values: 5, valueText: 60, defaultText: 16, nested: 1, room: 100, terse: true}
	out := writer{document: output, values: 3, valueText: 40, nested: 1, room: 60, terse: true}
	return w.parameters(Arguments(input), 200, 60) + out.arrow()
}

// LearnedMark stands behind a signature whose type of result was learned from
// calls.
const LearnedMark = "  # learned"

// Learned returns what a signature says of a result whose shape was learned, a
// JSON Schema of the value that the call returns. brief shows one level of it.
func Learned(shape json.RawMessage, brief bool) string {
	if len(shape) == 0 {
		return ""
	}
	w := writer{document: shape, nested: 3, room: 400}
	if brief {
		w.nested, w.room = 1, 60
	}
	result := w.text(w.kinds(shape, 0))
	if result == "" {
		return ""
	}
	return " -> " + result + LearnedMark
}

// arrow returns what a signature says of the call's result.
func (w *writer) arrow() string {
	if result := w.returned(); result != "" {
		return " -> " + result
	}
	return ""
}

// parameters writes the required arguments up to so many characters, and
// optional ones while there are less than so many. It writes all required ones,
// by their names alone when there is no room.
func (w *writer) parameters(arguments []Argument, required, optional int) string {
	var parts, odd []string
	used := 0
	for i := range arguments {
		a := &arguments[i]
		text, plain := w.parameter(a)
		switch {
		case !a.Required && used+len(text) > optional, used > maxWhole:
			parts = append(parts, "...")
		case a.Required && used+len(text) > required && plain:
			text = a.Written
			fallthrough
		default:
			used += len(text) + 2
			if plain {
				parts = append(parts, text)
			} else {
				odd = append(odd, text)
			}
			continue
		}
		break
	}
	if len(odd) > 0 {
		parts = append(parts, "**{"+strings.Join(odd, ", ")+"}")
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// parameter writes one argument. One that only ** can give is written as an entry
// of a dict.
func (w *writer) parameter(a *Argument) (text string, plain bool) {
	kind := w.kind(a.schema, 0)
	if a.Written == "" {
		if kind == "" {
			kind = "Any"
		}
		return quote(a.Name) + ": " + kind, false
	}
	text = a.Written
	if kind != "" {
		text += ": " + kind
	}
	if a.Required {
		return text, true
	}
	initial := w.initial(a.schema)
	if kind == "" || w.terse && initial != "..." && initial != "None" && slices.Contains(scalars, kind) {
		return a.Written + "=" + initial, true
	}
	return text + " = " + initial, true
}

// scalars are the types that a default value shows by itself.
var scalars = []string{"str", "int", "float", "bool"}

// initial returns the default that a schema names. "..." stands for one that is
// not known: the argument may be left out.
func (w *writer) initial(schema json.RawMessage) string {
	text := "..."
	members(w.resolve(schema), func(key string, value json.RawMessage) {
		if key == "default" {
			if s, ok := literal(value, w.defaultText); ok {
				text = s
			}
		}
	})
	return text
}

// Unwrapped returns the one property of an output schema whose value a call
// returns instead of the object: "result", or a property that is a string. It
// returns "" where a call returns the object itself.
func Unwrapped(output json.RawMessage) string {
	w := writer{document: output}
	name, _ := w.unwrapped()
	return name
}

func (w *writer) unwrapped() (name string, schema json.RawMessage) {
	root := w.resolve(w.document)
	of := properties(root)
	if len(of) != 1 || of[0].schema == nil || composed(root) {
		return "", nil
	}
	if of[0].Name == "result" || w.isString(of[0].schema) {
		return of[0].Name, of[0].schema
	}
	return "", nil
}

// composed reports whether other schemas add to what a schema says itself.
func composed(raw json.RawMessage) bool {
	s := parse(raw)
	return len(s.options) > 0 || len(s.all) > 0
}

// isString reports whether a schema allows strings only.
func (w *writer) isString(raw json.RawMessage) bool {
	kinds := w.kinds(raw, 0)
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k string) bool {
		return k != "str" && !strings.HasPrefix(k, "Literal['") && !strings.HasPrefix(k, `Literal["`)
	})
}

// returned is the type of a call's result.
func (w *writer) returned() string {
	if len(w.document) == 0 {
		return ""
	}
	if name, of := w.unwrapped(); name != "" {
		return w.kind(of, 0)
	}
	return w.text(w.kinds(w.document, 0))
}

// text writes a union, less exactly if it is long.
func (w *writer) text(kinds []string) string {
	if text := join(kinds); len(text) <= 2*w.room {
		return text
	}
	for i := range kinds {
		kinds[i] = loose(kinds[i])
	}
	return join(kinds)
}

func members(raw json.RawMessage, yield func(key string, value json.RawMessage)) {
	if jsonscan.Kind(raw) != '{' {
		return
	}
	_ = jsonscan.Members(raw, func(key string, value json.RawMessage) bool { // what was read of a broken one counts
		yield(key, value)
		return true
	})
}

func elements(raw json.RawMessage, yield func(value json.RawMessage)) {
	if jsonscan.Kind(raw) != '[' {
		return
	}
	_ = jsonscan.Elements(raw, func(value json.RawMessage) bool {
		yield(value)
		return true
	})
}

func str(raw json.RawMessage) (string, bool) {
	var s string
	if jsonscan.Kind(raw) != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}
