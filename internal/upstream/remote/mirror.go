package remote

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// A Mirrored argument of a tool is repeated in a header, since 2026-07-28, so
// that intermediaries can route by it.
type Mirrored struct {
	Path   []string // names of properties, outermost first
	Header string   // after Mcp-Param-
}

// maxMirrorDepth bounds how deep properties are searched, and maxMirrored how
// many a tool has: each call searches for all of them.
const (
	maxMirrorDepth = 32
	maxMirrored    = 64
)

// MirroredArguments reads the x-mcp-header members of a tool's input schema. A
// tool whose schema gives an error must not be used over HTTP.
func MirroredArguments(schema json.RawMessage) ([]Mirrored, error) {
	m := mirrors{seen: map[string]bool{}}
	m.walk(schema, nil)
	return m.found, m.err
}

type mirrors struct {
	found []Mirrored
	seen  map[string]bool
	err   error
}

func (m *mirrors) walk(schema json.RawMessage, path []string) {
	if len(path) >= maxMirrorDepth || jsonscan.Kind(schema) != '{' {
		return
	}
	var properties json.RawMessage
	_ = jsonscan.Members(schema, func(key string, value json.RawMessage) bool { // validated on arrival
		if key == "properties" {
			properties = value
		}
		return true
	})
	if jsonscan.Kind(properties) != '{' {
		return
	}
	_ = jsonscan.Members(properties, func(name string, property json.RawMessage) bool {
		inner := append(path[:len(path):len(path)], name)
		m.property(property, inner)
		m.walk(property, inner)
		return m.err == nil
	})
}

func (m *mirrors) property(property json.RawMessage, path []string) {
	if jsonscan.Kind(property) != '{' {
		return
	}
	var header json.RawMessage
	var kind string
	_ = jsonscan.Members(property, func(key string, value json.RawMessage) bool {
		switch key {
		case "x-mcp-header":
			header = value
		case "type":
			_ = json.Unmarshal(value, &kind) // a list of types leaves kind empty
		}
		return true
	})
	if header == nil {
		return
	}
	var name string
	where := strings.Join(path, ".")
	switch {
	case json.Unmarshal(header, &name) != nil || name == "":
		m.err = fmt.Errorf("argument %.60q: x-mcp-header must be a non-empty string", where)
	case !isToken(name):
		m.err = fmt.Errorf("argument %.60q: x-mcp-header is not the name of a header", where)
	case kind != "string" && kind != "integer" && kind != "boolean":
		m.err = fmt.Errorf("argument %.60q: x-mcp-header with the type %.20q", where, kind)
	case len(m.found) >= maxMirrored:
		m.err = fmt.Errorf("x-mcp-header is there more than %d times", maxMirrored)
	case m.seen[strings.ToLower(name)]:
		m.err = fmt.Errorf("argument %.60q: x-mcp-header is there twice", where)
	default:
		m.seen[strings.ToLower(name)] = true
		m.found = append(m.found, Mirrored{Path: path, Header: name})
	}
}

func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// ArgumentHeaders returns the headers that repeat arguments. An argument that
// is missing, null or of another type has none.
func ArgumentHeaders(mirrored []Mirrored, arguments json.RawMessage) map[string]string {
	var out map[string]string
	for _, m := range mirrored {
		value := arguments
		for _, name := range m.Path {
			value = member(value, name)
		}
		if text, ok := scalar(value); ok {
			if out == nil {
				out = make(map[string]string, len(mirrored))
			}
			out["Mcp-Param-"+m.Header] = EncodeHeader(text)
		}
	}
	return out
}

func member(object json.RawMessage, name string) (found json.RawMessage) {
	if jsonscan.Kind(object) != '{' {
		return nil
	}
	_ = jsonscan.Members(object, func(key string, value json.RawMessage) bool {
		if key == name {
			found = value
		}
		return true
	})
	return found
}

// scalar formats a string, a boolean, or an integer that every implementation
// can represent.
func scalar(value json.RawMessage) (string, bool) {
	switch kind := jsonscan.Kind(value); kind {
	case '"':
		var s string
		err := json.Unmarshal(value, &s)
		return s, err == nil
	case 't', 'f':
		return strings.TrimSpace(string(value)), true
	case 0, 'n', '{', '[':
		return "", false
	}
	const safe = 1<<53 - 1
	f, err := strconv.ParseFloat(strings.TrimSpace(string(value)), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > safe {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
}

const encodedBegin, encodedEnd = "=?base64?", "?="

// EncodeHeader encodes a string for use as the value of a header.
func EncodeHeader(text string) string {
	plain := text == strings.Trim(text, " \t") && !(strings.HasPrefix(text, encodedBegin) && strings.HasSuffix(text, encodedEnd))
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			plain = false
		}
	}
	if plain {
		return text
	}
	return encodedBegin + base64.StdEncoding.EncodeToString([]byte(text)) + encodedEnd
}
