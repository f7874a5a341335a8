package definitions

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/tailscale/hujson"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/lazyregexp"
)

// Bounds of formats other than JSON, whose parsers are slower.
const (
	maxOtherSize = 2 << 20
	maxNodes     = 200_000
)

// decode parses a file of any format into a tree. An empty file is an empty
// object if the client leaves such files behind.
func decode(data []byte, d *dialect) (node, error) {
	data, _ = utf8Of(data)
	if d != own && len(bytes.TrimSpace(data)) == 0 {
		return node{line: 1, kind: '{'}, nil
	}
	switch d.format {
	case edit.JSONC:
		root, err := parseJSONC(data, d.prune)
		return root, explained(data, err)
	case edit.TOML:
		return parseTOML(data)
	case edit.YAML:
		return parseYAML(data)
	}
	root, err := parseTree(data, d.prune)
	return root, explained(data, err)
}

var hujsonLine = lazyregexp.New(`line (\d+), column \d+: `)

// parseJSONC reads JSON with comments and trailing commas. Both become blanks,
// so that line numbers stay the same.
func parseJSONC(data []byte, prune func([]string) bool) (node, error) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	// Most files have neither, and the strict parser has the best errors.
	root, strictErr := parseTree(data, prune)
	if strictErr == nil {
		return root, nil
	}
	if depth(data) > maxDepth {
		return node{}, strictErr
	}
	// A comment on the last line needs a line feed.
	plain, err := hujson.Standardize(append(bytes.Clone(data), '\n'))
	if err != nil {
		line, reason := 1, err.Error()
		if m := hujsonLine().FindStringSubmatch(reason); m != nil {
			line, _ = strconv.Atoi(m[1]) // digits
			_, reason, _ = strings.Cut(reason, m[0])
		}
		line = min(line, bytes.Count(data, []byte("\n"))+1)
		var strict *parseError
		if errors.As(strictErr, &strict) && strict.line >= line {
			return node{}, strictErr
		}
		return node{}, &parseError{line, clip(strings.TrimPrefix(reason, "hujson: "))}
	}
	return parseTree(plain, prune)
}

// depth returns at least the nesting of a document, even counting brackets in
// strings: the parser of comments recurses without limit.
func depth(data []byte) int {
	n, most := 0, 0
	for _, c := range data {
		switch c {
		case '{', '[':
			n++
			most = max(most, n)
		case '}', ']':
			n--
		}
	}
	return most
}

// dotted returns at least how deep one key of a TOML document nests: dots nest
// as brackets do.
func dotted(data []byte) (most int) {
	for line := range bytes.Lines(data) {
		key, _, _ := bytes.Cut(line, []byte("="))
		most = max(most, bytes.Count(key, []byte(".")))
	}
	return most
}

// parseTOML parses a document. Tables have the line of their header, and so has
// everything in them.
func parseTOML(data []byte) (n node, err error) {
	defer recovered(&err)
	if len(data) > maxOtherSize {
		return node{}, fmt.Errorf("larger than %d MB", maxOtherSize>>20)
	}
	if depth(data) > maxDepth || dotted(data) > maxDepth {
		return node{}, errors.New("nested too deeply")
	}
	var doc map[string]any
	meta, err := toml.NewDecoder(bytes.NewReader(data)).Decode(&doc)
	var bad toml.ParseError
	if errors.As(err, &bad) {
		at := min(max(bad.Position.Start, 0), len(data))
		return node{}, &parseError{1 + bytes.Count(data[:at], []byte("\n")), clip(bad.Message)}
	}
	if err != nil {
		return node{}, &parseError{1, clip(err.Error())}
	}
	// Restore the order of the file, which the map has lost.
	order := make(map[string]int)
	for i, key := range meta.Keys() {
		if text := strings.Join(key, "\x00"); order[text] == 0 {
			order[text] = i + 1
		}
	}
	t := &tomlTree{order: order, lines: tomlLines(data)}
	return t.node(doc, nil, 1, 0)
}

var tomlHeader = lazyregexp.New(`^\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$`)

// tomlLines finds the lines of the headers of tables.
func tomlLines(data []byte) map[string]int {
	lines := make(map[string]int)
	at := 0
	for line := range bytes.Lines(data) {
		at++
		if m := tomlHeader().FindSubmatch(bytes.TrimRight(line, "\r\n")); m != nil {
			parts := splitKey(string(m[1]))
			for i := range parts { // a parent may have no header of its own
				key := strings.Join(parts[:i+1], "\x00")
				if lines[key] == 0 || i == len(parts)-1 {
					lines[key] = at
				}
			}
		}
	}
	return lines
}

// splitKey splits a dotted key with quoted parts.
func splitKey(s string) []string {
	var parts []string
	for s != "" {
		s = strings.TrimLeft(s, " \t.")
		if s == "" {
			break
		}
		if q := s[0]; q == '"' || q == '\'' {
			if end := strings.IndexByte(s[1:], q); end >= 0 {
				parts = append(parts, s[1:1+end])
				s = s[end+2:]
				continue
			}
		}
		part, rest, _ := strings.Cut(s, ".")
		parts = append(parts, strings.TrimSpace(part))
		s = rest
	}
	return parts
}

type tomlTree struct {
	order map[string]int
	lines map[string]int
	count int
}

func (t *tomlTree) node(v any, path []string, line, depth int) (node, error) {
	if t.count++; t.count > maxNodes || depth > maxDepth {
		return node{}, &parseError{line, "too large or nested too deeply"}
	}
	n := node{line: line}
	switch v := v.(type) {
	case string:
		n.kind, n.text = '"', v
	case bool:
		n.kind, n.text = 'f', "false"
		if v {
			n.kind, n.text = 't', "true"
		}
	case int64:
		n.kind, n.text = '0', strconv.FormatInt(v, 10)
	case float64:
		n = number(n, v)
	case time.Time:
		n.kind, n.text = '"', v.Format(time.RFC3339Nano)
	case map[string]any:
		n.kind = '{'
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, func(a, b string) int {
			if d := t.order[joined(path, a)] - t.order[joined(path, b)]; d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		for _, key := range keys {
			at := line
			if l := t.lines[joined(path, key)]; l > 0 {
				at = l
			}
			below := append(slices.Clone(path), key)
			value, err := t.node(v[key], below, at, depth+1)
			if err != nil {
				return n, err
			}
			n.members = append(n.members, member{key: key, line: at, value: value})
		}
	case []any:
		n.kind = '['
		for _, item := range v {
			value, err := t.node(item, path, line, depth+1)
			if err != nil {
				return n, err
			}
			n.items = append(n.items, value)
		}
	case []map[string]any:
		n.kind = '['
		for _, item := range v {
			value, err := t.node(item, path, line, depth+1)
			if err != nil {
				return n, err
			}
			n.items = append(n.items, value)
		}
	default:
		n.kind, n.text = '"', fmt.Sprint(v)
	}
	return n, nil
}

func joined(path []string, key string) string {
	return strings.Join(append(slices.Clone(path), key), "\x00")
}

func number(n node, v float64) node {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		n.kind, n.text = '"', strconv.FormatFloat(v, 'g', -1, 64)
		return n
	}
	n.kind, n.text = '0', strconv.FormatFloat(v, 'f', -1, 64)
	return n
}

// parseYAML parses one document. It refuses anchors and tags: no list of
// servers needs them, and they can make a small file expand enormously.
func parseYAML(data []byte) (n node, err error) {
	defer recovered(&err)
	if len(data) > maxOtherSize {
		return node{}, fmt.Errorf("larger than %d MB", maxOtherSize>>20)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		return node{}, errors.New("not UTF-8")
	}
	lines := bytes.Count(data, []byte("\n")) + 1
	if depth(data) > maxDepth || indent(data) > 2*maxDepth {
		return node{}, errors.New("nested too deeply")
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		var at interface {
			GetToken() *token.Token
			GetMessage() string
		}
		if errors.As(err, &at) {
			line := 1
			if t := at.GetToken(); t != nil && t.Position != nil {
				line = t.Position.Line
			}
			return node{}, &parseError{min(max(line, 1), lines), clip(at.GetMessage())}
		}
		return node{}, &parseError{1, clip(err.Error())}
	}
	root := node{line: 1, kind: '{'}
	y := &yamlTree{lines: lines}
	for _, doc := range file.Docs {
		switch doc.Body.(type) {
		case nil, *ast.NullNode, *ast.DirectiveNode, *ast.CommentGroupNode:
			continue
		}
		return y.node(doc.Body, 0)
	}
	return root, nil
}

// indent returns the deepest indentation of a document, and the deepest nesting
// of lists on one line.
func indent(data []byte) int {
	most := 0
	for line := range bytes.Lines(data) {
		n := 0
		for n < len(line) && (line[n] == ' ' || line[n] == '-' || line[n] == '?') {
			n++
		}
		most = max(most, n)
	}
	return most
}

type yamlTree struct{ lines, count int }

func (y *yamlTree) node(v ast.Node, depth int) (node, error) {
	n := node{line: 1}
	if v == nil {
		n.kind = 'n'
		return n, nil
	}
	if t := v.GetToken(); t != nil && t.Position != nil {
		n.line = min(max(t.Position.Line, 1), y.lines)
	}
	if y.count++; y.count > maxNodes || depth > maxDepth {
		return n, &parseError{n.line, "too large or nested too deeply"}
	}
	switch v := v.(type) {
	case *ast.MappingNode:
		return y.mapping(n, v.Values, depth)
	case *ast.MappingValueNode:
		return y.mapping(n, []*ast.MappingValueNode{v}, depth)
	case *ast.SequenceNode:
		n.kind = '['
		for _, item := range v.Values {
			value, err := y.node(item, depth+1)
			if err != nil {
				return n, err
			}
			n.items = append(n.items, value)
		}
	case *ast.StringNode:
		n.kind, n.text = '"', v.Value
	case *ast.LiteralNode:
		n.kind = '"'
		if v.Value != nil {
			n.text = v.Value.Value
		}
	case *ast.BoolNode:
		n.kind, n.text = 'f', "false"
		if v.Value {
			n.kind, n.text = 't', "true"
		}
	case *ast.NullNode:
		n.kind, n.text = 'n', "null"
	case *ast.IntegerNode:
		n.kind, n.text = '0', fmt.Sprint(v.Value)
	case *ast.FloatNode:
		n = number(n, v.Value)
	case *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = '"', clip(v.String())
	default:
		return n, &parseError{n.line, "anchors, aliases and tags are not read"}
	}
	return n, nil
}

func (y *yamlTree) mapping(n node, pairs []*ast.MappingValueNode, depth int) (node, error) {
	n.kind = '{'
	seen := make(map[string]bool)
	for _, pair := range pairs {
		key, err := y.node(pair.Key, depth+1)
		if err != nil {
			return n, err
		}
		if key.kind == '{' || key.kind == '[' {
			return n, &parseError{key.line, "a key must be a string"}
		}
		if seen[key.text] {
			return n, &parseError{key.line, fmt.Sprintf("the key %q occurs twice", clip(key.text))}
		}
		seen[key.text] = true
		value, err := y.node(pair.Value, depth+1)
		if err != nil {
			return n, err
		}
		n.members = append(n.members, member{key: key.text, line: key.line, value: value})
	}
	return n, nil
}

// recovered turns a panic of a third-party parser into an error: another
// program's file must not end this one.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = &parseError{1, "cannot be read: " + clip(fmt.Sprint(r))}
	}
}
