package definitions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a file.
const maxDepth = 100

// node is one JSON value and the line where it starts.
type node struct {
	line    int
	kind    byte // '{' '[' '"' '0' 't' 'f' 'n'
	text    string
	members []member // of an object, in file order
	items   []node   // of an array
}

type member struct {
	key   string
	line  int
	value node
}

// get returns the member called key.
func (n *node) get(key string) (*node, bool) {
	for i := range n.members {
		if n.members[i].key == key {
			return &n.members[i].value, true
		}
	}
	return nil, false
}

// what returns the kind of a node, for people.
func (n *node) what() string {
	switch n.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "true or false"
}

const notUTF8 = "not UTF-8"

// parseError is a syntax error.
type parseError struct {
	line   int
	reason string
}

func (e *parseError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.reason) }

type treeParser struct {
	data []byte
	dec  *json.Decoder
	// Lines are counted once, going forward.
	counted int64
	line    int

	// prune, if not nil, reports which members are kept; the others are left out.
	// path has their keys.
	prune func(path []string) bool
	path  []string
}

// parseTree parses one strict JSON document. Keys that occur twice in one
// object are an error: programs differ in which one counts.
func parseTree(data []byte, prune func([]string) bool) (node, error) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	p := &treeParser{data: data, dec: json.NewDecoder(bytes.NewReader(data)), line: 1, prune: prune}
	p.dec.UseNumber()
	if !utf8.Valid(data) {
		for i, r := range string(data) {
			if r == utf8.RuneError && !bytes.HasPrefix(data[i:], []byte("\uFFFD")) {
				return node{}, &parseError{p.lineAt(int64(i)), notUTF8}
			}
		}
	}
	root, err := p.value(0)
	if err != nil {
		return node{}, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return node{}, &parseError{p.here(), "more after the end of the JSON value"}
	}
	return root, nil
}

// here returns the line of the next token.
func (p *treeParser) here() int {
	offset := p.dec.InputOffset()
	for offset < int64(len(p.data)) && strings.IndexByte(" \t\r\n,:", p.data[offset]) >= 0 {
		offset++
	}
	return p.lineAt(offset)
}

func (p *treeParser) lineAt(offset int64) int {
	offset = min(offset, int64(len(p.data)))
	if offset > p.counted {
		p.line += bytes.Count(p.data[p.counted:offset], []byte{'\n'})
		p.counted = offset
	}
	return p.line
}

func (p *treeParser) token() (json.Token, int, error) {
	line := p.here()
	token, err := p.dec.Token()
	if err == nil {
		return token, line, nil
	}
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		// Offset is that of the byte after the error.
		return nil, 0, &parseError{p.lineAt(max(syntax.Offset-1, 0)), syntax.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, 0, &parseError{p.lineAt(int64(len(p.data))), "the file ends in the middle of a value"}
	}
	return nil, 0, &parseError{line, err.Error()}
}

func (p *treeParser) value(depth int) (node, error) {
	token, line, err := p.token()
	if err != nil {
		return node{}, err
	}
	n := node{line: line}
	switch t := token.(type) {
	case string:
		n.kind, n.text = '"', t
	case json.Number:
		n.kind, n.text = '0', t.String()
	case bool:
		n.kind, n.text = 'f', "false"
		if t {
			n.kind, n.text = 't', "true"
		}
	case nil:
		n.kind, n.text = 'n', "null"
	case json.Delim:
		if depth >= maxDepth {
			return node{}, &parseError{line, "nested too deeply"}
		}
		n.kind = byte(t)
		if t == '[' {
			err = p.array(&n, depth)
		} else {
			err = p.object(&n, depth)
		}
	}
	return n, err
}

func (p *treeParser) array(n *node, depth int) error {
	for p.dec.More() {
		item, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	_, _, err := p.token() // the closing bracket, or what is wrong
	return err
}

func (p *treeParser) object(n *node, depth int) error {
	seen := make(map[string]int)
	for p.dec.More() {
		token, line, err := p.token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return &parseError{line, "a key must be a string"}
		}
		if first, twice := seen[key]; twice {
			return &parseError{line, fmt.Sprintf("the key %q occurs twice (first on line %d)", clip(key), first)}
		}
		seen[key] = line
		if p.prune != nil {
			p.path = append(p.path, key)
			if !p.prune(p.path) {
				p.path = p.path[:len(p.path)-1]
				if err := p.skip(); err != nil {
					return err
				}
				continue
			}
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		if p.prune != nil {
			p.path = p.path[:len(p.path)-1]
		}
		n.members = append(n.members, member{key: key, line: line, value: value})
	}
	_, _, err := p.token()
	return err
}

// skip reads one value and discards it: only its syntax is checked.
func (p *treeParser) skip() error {
	start := p.here()
	var raw json.RawMessage
	err := p.dec.Decode(&raw)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return &parseError{p.lineAt(max(syntax.Offset-1, 0)), syntax.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &parseError{p.lineAt(int64(len(p.data))), "the file ends in the middle of a value"}
	}
	return &parseError{start, err.Error()}
}

// json formats the node as JSON, in file order.
func (n *node) json() string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

func (n *node) write(b *strings.Builder) {
	quote := func(s string) {
		text, err := encode(s)
		if err == nil { // a string can always be encoded
			b.Write(text)
		}
	}
	switch n.kind {
	case '{':
		b.WriteByte('{')
		for i := range n.members {
			if i > 0 {
				b.WriteByte(',')
			}
			quote(n.members[i].key)
			b.WriteByte(':')
			n.members[i].value.write(b)
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for i := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			n.items[i].write(b)
		}
		b.WriteByte(']')
	case '"':
		quote(n.text)
	default:
		b.WriteString(n.text)
	}
}

// hash writes the contents of a node, without its lines.
func (n *node) hash(h io.Writer) {
	hashText(h, n.kind, n.text)
	for i := range n.members {
		hashText(h, 'k', n.members[i].key)
		n.members[i].value.hash(h)
	}
	for i := range n.items {
		n.items[i].hash(h)
	}
	hashText(h, ')', "")
}

// hashText writes a string with its length, so that what follows cannot be
// taken for a part of it.
func hashText(h io.Writer, kind byte, text string) {
	// A hash never fails to be written to.
	_, _ = fmt.Fprintf(h, "%c%d:%s", kind, len(text), text)
}

// clip shortens what is quoted from a file.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
