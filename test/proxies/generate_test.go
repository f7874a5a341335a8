package proxies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"sort"
	"strings"
	"unicode/utf16"
)

// generator makes values that fit a schema, the same ones each time.
type generator struct {
	root map[string]any
	rand *rand.Rand
}

func newGenerator(name string, root map[string]any) *generator {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &generator{root: root, rand: rand.New(rand.NewPCG(h.Sum64(), 458))}
}

// Texts and numbers that are easily damaged on their way.
var (
	texts = []string{
		"plain", "", "ä ö ü — “quoted”", "\U0001F600 \U0001F1E9\U0001F1EA", "tab\tline\nreturn\r\\ \" '", "\x00\x1f\x7f",
		"</script>&<>", "\u2028\u2029\ufeff", "null", "9007199254740993", "{\"a\": 1}", "日本語", "é", "${HOME} `id` %s {0}", " x ",
	}
	integers = []string{"0", "-1", "7", "9007199254740993", "-9223372036854775809", "1180591620717411303424"}
	numbers  = []string{"0.5", "-1.25", "3", "1234.0625", "9007199254740993"}
	// Names that a Python function could have for itself.
	names = []string{"class", "self", "from", "_target", "args", "kwargs", "timeout", "name", "größe", "a-b", "", "\U0001F600"}
)

func (g *generator) pick(from []string) string { return from[g.rand.IntN(len(from))] }

// member is one of an object, in its order.
type member struct {
	name  string
	value json.RawMessage
}

// arguments are those of one call: a member for every property that is
// required, and for most others, in any order.
func (g *generator) arguments() []member {
	members := g.members(g.root, 0)
	if g.root["additionalProperties"] != false && g.rand.IntN(4) == 0 {
		members = g.more(members, 3, func() json.RawMessage { return g.anything() })
	}
	g.rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return members
}

func (g *generator) members(schema map[string]any, depth int) []member {
	required := map[string]bool{}
	for _, name := range list(schema["required"]) {
		required[name.(string)] = true
	}
	properties, _ := schema["properties"].(map[string]any)
	ordered := make([]string, 0, len(properties))
	for name := range properties {
		ordered = append(ordered, name)
	}
	sort.Strings(ordered)
	var members []member
	for _, name := range ordered {
		if required[name] || depth < 3 && g.rand.IntN(3) > 0 {
			members = append(members, member{name, g.value(properties[name], depth+1)})
		}
	}
	return members
}

// more adds members with names of their own.
func (g *generator) more(members []member, n int, value func() json.RawMessage) []member {
	taken := map[string]bool{}
	for _, m := range members {
		taken[m.name] = true
	}
	for range n {
		if name := g.pick(names); !taken[name] {
			taken[name] = true
			members = append(members, member{name, value()})
		}
	}
	return members
}

func (g *generator) value(of any, depth int) json.RawMessage {
	schema, _ := of.(map[string]any)
	if ref, ok := schema["$ref"].(string); ok {
		return g.value(g.resolve(ref), depth)
	}
	if value, ok := schema["const"]; ok {
		return encode(value)
	}
	if options := list(schema["enum"]); len(options) > 0 {
		return encode(options[g.rand.IntN(len(options))])
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if options := list(schema[key]); len(options) > 0 {
			if depth > 3 {
				return g.value(options[len(options)-1], depth+1)
			}
			return g.value(options[g.rand.IntN(len(options))], depth+1)
		}
	}
	kind, _ := schema["type"].(string)
	if kinds := list(schema["type"]); len(kinds) > 0 {
		kind = kinds[g.rand.IntN(len(kinds))].(string)
	}
	switch kind {
	case "string":
		return g.text(schema)
	case "integer":
		return g.number(schema, integers)
	case "number":
		return g.number(schema, numbers)
	case "boolean":
		return encode(g.rand.IntN(2) == 0)
	case "null":
		return encode(nil)
	case "array":
		return g.array(schema, depth)
	case "object":
		return g.object(schema, depth)
	}
	return g.anything()
}

func (g *generator) anything() json.RawMessage {
	switch g.rand.IntN(4) {
	case 0:
		return encode(nil)
	case 1:
		return json.RawMessage(g.pick(integers))
	case 2:
		return object([]member{{g.pick(names), encode(g.pick(texts))}})
	}
	return encode(g.pick(texts))
}

func (g *generator) resolve(ref string) any {
	var at any = g.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[part]
	}
	return at
}

// formats and patterns that occur in the schemas.
var formats = map[string]string{
	"uri": "https://example.com/ä?x=1#y", "url": "https://example.com/", "email": "a@example.com", "date": "2026-01-02",
	"date-time": "2026-01-02T03:04:05Z", "uuid": "123e4567-e89b-12d3-a456-426614174000", "json": "{}",
}

func (g *generator) text(schema map[string]any) json.RawMessage {
	if format, ok := schema["format"].(string); ok {
		if text, ok := formats[format]; ok {
			return encode(text)
		}
	}
	if _, ok := schema["pattern"]; ok {
		return encode("a1._-x")
	}
	text := []rune(g.pick(texts))
	if least := whole(schema["minLength"], 0); len(text) < least {
		text = append(text, []rune(strings.Repeat("ü", least-len(text)))...)
	}
	if most := whole(schema["maxLength"], len(text)); len(text) > most {
		text = text[:most]
	}
	return encode(string(text))
}

func (g *generator) number(schema map[string]any, from []string) json.RawMessage {
	var fit []string
	for _, n := range from {
		if within(schema, n) {
			fit = append(fit, n)
		}
	}
	if len(fit) > 0 {
		return json.RawMessage(g.pick(fit))
	}
	least := whole(schema["minimum"], whole(schema["exclusiveMinimum"], 0)+1)
	most := whole(schema["maximum"], whole(schema["exclusiveMaximum"], least+1000)-1)
	return encode(least + g.rand.IntN(max(1, most-least+1)))
}

// within says whether a number is in a schema's bounds.
func within(schema map[string]any, text string) bool {
	n, _ := new(big.Rat).SetString(text)
	for key, ok := range map[string]func(int) bool{
		"minimum":          func(c int) bool { return c >= 0 },
		"maximum":          func(c int) bool { return c <= 0 },
		"exclusiveMinimum": func(c int) bool { return c > 0 },
		"exclusiveMaximum": func(c int) bool { return c < 0 },
	} {
		bound, is := schema[key].(json.Number)
		if !is {
			continue
		}
		if b, is := new(big.Rat).SetString(string(bound)); !is || !ok(n.Cmp(b)) {
			return false
		}
	}
	return true
}

func (g *generator) array(schema map[string]any, depth int) json.RawMessage {
	n := g.rand.IntN(3)
	if depth > 3 {
		n = 0
	}
	n = min(max(n, whole(schema["minItems"], 0)), whole(schema["maxItems"], n+whole(schema["minItems"], 0)))
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(g.value(schema["items"], depth+1))
	}
	b.WriteByte(']')
	return b.Bytes()
}

func (g *generator) object(schema map[string]any, depth int) json.RawMessage {
	members := g.members(schema, depth)
	more, open := schema["additionalProperties"].(map[string]any)
	switch {
	case open && len(more) > 0:
		members = g.more(members, 1, func() json.RawMessage {
			// Names may be held to something too.
			return g.value(more, depth+1)
		})
		if _, held := schema["propertyNames"]; held {
			members[len(members)-1].name = "plain"
		}
	case schema["additionalProperties"] != false && len(members) == 0:
		members = g.more(members, 2, func() json.RawMessage { return g.anything() })
	}
	g.rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return object(members)
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func whole(v any, otherwise int) int {
	n, ok := v.(json.Number)
	if !ok {
		return otherwise
	}
	f, err := n.Float64()
	if err != nil || f > 1<<40 || f < -1<<40 {
		return otherwise
	}
	return int(f)
}

// The JSON that Python writes: nothing but ASCII, no white space.

func object(members []member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(quote(m.name))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func encode(v any) json.RawMessage {
	switch v := v.(type) {
	case string:
		return quote(v)
	case []any:
		var b bytes.Buffer
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(encode(item))
		}
		b.WriteByte(']')
		return b.Bytes()
	case json.Number:
		return json.RawMessage(v)
	case nil, bool, int:
		b, _ := json.Marshal(v) // of these it cannot fail
		return b
	}
	panic(fmt.Sprintf("a constant of type %T", v))
}

func quote(s string) []byte {
	b := []byte{'"'}
	for _, r := range s {
		switch {
		case strings.ContainsRune("\"\\", r):
			b = append(b, '\\', byte(r))
		case strings.ContainsRune("\n\r\t\b\f", r):
			b = append(b, '\\', "nrtbf"[strings.IndexRune("\n\r\t\b\f", r)])
		case r >= 0x20 && r < 0x7f:
			b = append(b, byte(r))
		case r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return append(b, '"')
}
