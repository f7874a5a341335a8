// Package signature writes what a tool takes as Python would: names, types,
// defaults, required arguments first. A model reads it in a tenth of the tokens
// of the JSON Schema that it is made of.
//
// Schemas are what servers send: of any size, cyclic, contradictory. Whatever
// cannot be told shortly is left out or told less exactly; the schema itself is
// there for who asks.
package signature

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"sallyport/internal/hidden"
	"sallyport/internal/upstream/jsonrpc"
)

// Bounds of what is read and written, whatever a schema holds.
const (
	maxArguments = 200  // of one tool
	maxNodes     = 3000 // schemas looked at for one signature
	maxDepth     = 24   // references and nesting followed
	maxWhole     = 4000 // characters of a whole signature
)

// Argument is one property of an input schema.
type Argument struct {
	Name        string
	Description string
	Required    bool
	schema      json.RawMessage
}

// Arguments returns the arguments in the order in which a call may give them by
// position: the required ones in the schema's order, then the others.
func Arguments(schema json.RawMessage) []Argument {
	var properties json.RawMessage
	required := map[string]bool{}
	var order []string // of required
	members(schema, func(key string, value json.RawMessage) {
		switch key {
		case "properties":
			properties = value
		case "required":
			elements(value, func(v json.RawMessage) {
				if name, ok := str(v); ok && !required[name] && len(required) < maxArguments {
					required[name] = true
					order = append(order, name)
				}
			})
		}
	})
	var first, then []Argument
	seen := map[string]bool{}
	members(properties, func(name string, value json.RawMessage) {
		if seen[name] || len(seen) >= maxArguments {
			return
		}
		seen[name] = true
		a := Argument{Name: name, Required: required[name], schema: value}
		members(value, func(key string, v json.RawMessage) {
			if key == "description" {
				a.Description, _ = str(v)
			}
		})
		if a.Required {
			first = append(first, a)
		} else {
			then = append(then, a)
		}
	})
	for _, name := range order {
		if !seen[name] {
			first = append(first, Argument{Name: name, Required: true})
		}
	}
	return append(first, then...)
}

// Whole is the signature with everything: objects with their properties, all
// values of enumerations that are not long, and what is returned where the
// server says so.
func Whole(input, output json.RawMessage) string {
	w := writer{document: input, values: 12, valueText: 200, defaultText: 80, nested: 2}
	text := w.parameters(Arguments(input), maxWhole, maxWhole)
	if result := returned(output); result != "" {
		text += " -> " + result
	}
	return text
}

// Brief is the signature for a list: the required arguments, and as many of the
// others as about thirty characters hold. What is left out is told by "...".
func Brief(input json.RawMessage) string {
	w := writer{document: input, values: 5, valueText: 60, defaultText: 16, terse: true}
	return w.parameters(Arguments(input), 160, 30)
}

// parameters writes the required arguments up to so many characters, and
// optional ones while there are less than so many. Required ones are told in
// any case, by their names alone when there is no room.
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
			text = a.Name
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

// parameter writes one argument. One whose name is no identifier can only be
// given by ** (or by its position) and is written as an entry of a dict.
func (w *writer) parameter(a *Argument) (text string, plain bool) {
	kind := w.kind(a.schema, 0)
	if !Identifier(a.Name) {
		if kind == "" {
			kind = "Any"
		}
		return quote(a.Name) + ": " + kind, false
	}
	text = a.Name
	if kind != "" {
		text += ": " + kind
	}
	if a.Required {
		return text, true
	}
	initial := w.initial(a.schema)
	if kind == "" || w.terse && initial != "..." && initial != "None" && slices.Contains(scalars, kind) {
		return a.Name + "=" + initial, true
	}
	return text + " = " + initial, true
}

// scalars are the types that a default value shows by itself.
var scalars = []string{"str", "int", "float", "bool"}

// initial is the default that a schema names, or "..." for one that is not
// known: the argument may be left out.
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

// returned is the type that a call gives: of an object with the one property
// "result" that property, because a call unwraps it.
func returned(output json.RawMessage) string {
	if len(output) == 0 {
		return ""
	}
	w := writer{document: output, values: 8, valueText: 80, nested: 2}
	var properties []Argument
	if properties = Arguments(output); len(properties) == 1 && properties[0].Name == "result" {
		return w.kind(properties[0].schema, 0)
	}
	text := w.kind(output, 0)
	if len(text) > 600 {
		return "dict"
	}
	return text
}

// keywords cannot be names of arguments in a call.
var keywords = strings.Fields("False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield")

// Identifier says whether a call in Python can name an argument so.
func Identifier(name string) bool {
	if name == "" || slices.Contains(keywords, name) || len(hidden.In(name)) > 0 {
		return false
	}
	for i, r := range name {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return true
}

func members(raw json.RawMessage, yield func(key string, value json.RawMessage)) {
	if jsonrpc.Kind(raw) != '{' {
		return
	}
	_ = jsonrpc.Members(raw, func(key string, value json.RawMessage) bool { // what was read of a broken one counts
		yield(key, value)
		return true
	})
}

func elements(raw json.RawMessage, yield func(value json.RawMessage)) {
	if jsonrpc.Kind(raw) != '[' {
		return
	}
	_ = jsonrpc.Elements(raw, func(value json.RawMessage) bool {
		yield(value)
		return true
	})
}

func str(raw json.RawMessage) (string, bool) {
	var s string
	if jsonrpc.Kind(raw) != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}
