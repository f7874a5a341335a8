package signature

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Argument is one property of an input schema.
type Argument struct {
	Name string
	// Written is how a call in Python names the argument: Name itself, or an
	// identifier that stands for it (class_ for class, a_b for a-b). It is empty
	// where such an identifier would stand for two arguments: then only ** of a
	// dict can give it.
	Written     string
	Description string
	Required    bool
	schema      json.RawMessage
}

// Arguments returns the arguments in the order in which a call may give them by
// position: the required ones in the schema's order, then the others. The
// sandbox's schema.py gathers them in the same way, and the golden file of this
// package keeps both alike.
func Arguments(schema json.RawMessage) []Argument {
	g := gatherer{writer: &writer{document: schema}, index: map[string]int{}}
	g.gather(schema, true)
	arguments := inOrder(g.found, g.required)
	writeNames(arguments)
	return arguments
}

// properties returns the properties that a schema itself names, in the order of
// Arguments.
func properties(schema json.RawMessage) []Argument {
	g := gatherer{index: map[string]int{}}
	g.own(schema, true)
	return inOrder(g.found, g.required)
}

// inOrder puts the required arguments first, those without a property last among
// them.
func inOrder(found []Argument, required []string) []Argument {
	var first, then []Argument
	for _, a := range found {
		if a.Required = slices.Contains(required, a.Name); a.Required {
			first = append(first, a)
		} else {
			then = append(then, a)
		}
	}
	for _, name := range required {
		if !slices.ContainsFunc(found, func(a Argument) bool { return a.Name == name }) {
			first = append(first, Argument{Name: name, Required: true})
		}
	}
	return append(first, then...)
}

// maxMerged bounds the schemas that make up the root.
const maxMerged = 20

// gatherer collects the properties of a schema and of those that it is made of.
type gatherer struct {
	writer   *writer // follows references
	found    []Argument
	index    map[string]int // of found, by name
	required []string
	seen     []*byte // the first bytes of the schemas
}

// own takes over what a schema says itself. always reports whether the schema
// holds for every call.
func (g *gatherer) own(schema json.RawMessage, always bool) (ref json.RawMessage, parts [3]json.RawMessage) {
	var properties, required json.RawMessage
	members(schema, func(key string, value json.RawMessage) {
		switch key {
		case "properties":
			properties = value
		case "required":
			required = value
		case "$ref":
			ref = value
		case "allOf":
			parts[0] = value
		case "anyOf":
			parts[1] = value
		case "oneOf":
			parts[2] = value
		}
	})
	mine := map[string]bool{}
	members(properties, func(name string, value json.RawMessage) {
		i, known := g.index[name]
		switch {
		case known && !mine[name], !known && len(g.found) >= maxArguments:
			return
		case !known:
			i = len(g.found)
			g.found, g.index[name] = append(g.found, Argument{Name: name}), i
		}
		mine[name] = true // of two members with one name the last counts
		g.found[i].schema, g.found[i].Description = value, ""
		members(value, func(key string, v json.RawMessage) {
			if key == "description" {
				g.found[i].Description, _ = str(v)
			}
		})
	})
	if always {
		elements(required, func(v json.RawMessage) {
			if name, ok := str(v); ok && len(g.required) < maxArguments && !slices.Contains(g.required, name) {
				g.required = append(g.required, name)
			}
		})
	}
	return ref, parts
}

func (g *gatherer) gather(schema json.RawMessage, always bool) {
	if jsonscan.Kind(schema) != '{' || len(g.seen) > maxMerged || slices.Contains(g.seen, &schema[0]) {
		return
	}
	g.seen = append(g.seen, &schema[0])
	ref, parts := g.own(schema, always)
	if ref != nil {
		g.gather(g.writer.follow(ref), always)
	}
	for i, list := range parts {
		elements(list, func(part json.RawMessage) { g.gather(part, always && i == 0) })
	}
}

// writeNames fills in how a call names the arguments.
func writeNames(arguments []Argument) {
	names, meanings := map[string]bool{}, map[string]int{}
	for i := range arguments {
		names[arguments[i].Name] = true
	}
	for i := range arguments {
		a := &arguments[i]
		if Identifier(a.Name) {
			a.Written = a.Name
			continue
		}
		if written := identifier(a.Name); Identifier(written) && !names[written] {
			a.Written = written
			meanings[written]++
		}
	}
	for i := range arguments {
		if a := &arguments[i]; meanings[a.Written] > 1 {
			a.Written = ""
		}
	}
}

// identifier returns an identifier that resembles a name.
func identifier(name string) string {
	hidden := invisible.In(name)
	written := strings.Map(func(r rune) rune {
		if (unicode.IsLetter(r) || unicode.IsDigit(r)) && !slices.Contains(hidden, r) {
			return r
		}
		return '_'
	}, name)
	if written == "" || unicode.IsDigit([]rune(written)[0]) {
		written = "_" + written
	}
	if !Identifier(written) {
		written += "_"
	}
	return written
}

// Renamed returns, by name, how a call writes the arguments whose names are not
// identifiers: nil where there are none.
func Renamed(arguments []Argument) map[string]string {
	var renamed map[string]string
	for _, a := range arguments {
		if a.Written != "" && a.Written != a.Name {
			if renamed == nil {
				renamed = map[string]string{}
			}
			renamed[a.Name] = a.Written
		}
	}
	return renamed
}

// keywords cannot be names of arguments in a call.
var keywords = strings.Fields("False None True __debug__ and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield")

// Identifier reports whether a call in Python can name an argument so.
func Identifier(name string) bool {
	if name == "" || slices.Contains(keywords, name) || len(invisible.In(name)) > 0 {
		return false
	}
	for i, r := range name {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return true
}
