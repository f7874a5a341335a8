// Package configfile changes the user's configuration file. Comments, order and
// layout stay, and the file is replaced whole or not at all.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// ErrByHand reports that content cannot be changed without losing something.
var ErrByHand = errors.New("the file cannot be changed without losing a comment or another setting: use 'sallyport config edit'")

// A spot is where a key is in a document, or how much of its path exists.
type spot struct {
	section *ast.MappingNode      // the innermost section of the key that exists
	holder  *ast.MappingValueNode // whose value section is; nil: the document
	under   string                // the rest of the key, below section
	pair    *ast.MappingValueNode // the key itself; nil: it is not set
	empty   *ast.MappingValueNode // a section of the key without anything in it
	parents []*ast.MappingNode
}

// Set returns the content with a key set to a value, which is YAML on one line.
func Set(content []byte, key, value string) ([]byte, error) {
	return asWritten(content, func(content []byte) ([]byte, error) { return set(content, key, value) })
}

// asWritten changes content without its byte order mark and, where all of its lines
// end in CRLF, with LF. The result has both again.
func asWritten(content []byte, change func([]byte) ([]byte, error)) ([]byte, error) {
	const mark, crlf = "\uFEFF", "\r\n"
	text, marked := strings.CutPrefix(string(content), mark)
	lines := strings.Count(text, crlf)
	if lines != strings.Count(text, "\r") {
		return nil, ErrByHand // a CR alone ends a line for the parser, and for no editor
	}
	if lines == strings.Count(text, "\n") {
		text = strings.ReplaceAll(text, crlf, "\n")
	} else {
		lines = 0
	}
	changed, err := change([]byte(text))
	if err != nil {
		return nil, err
	}
	after := string(changed)
	if after == text {
		return content, nil
	}
	if lines > 0 {
		after = strings.ReplaceAll(after, "\n", crlf)
	}
	if marked {
		after = mark + after
	}
	return []byte(after), nil
}

func set(content []byte, key, value string) ([]byte, error) {
	file, body, err := parse(content)
	if err != nil {
		return nil, err
	}
	if body == nil {
		return verify(content, withLines(content, snippet(key, value, 0)), key, false)
	}
	if values, err := flatten(content); err != nil || values[key] == value+"\n" {
		return content, err
	}
	at := find(body, key)
	before := file.String()
	switch {
	case at.pair != nil:
		if err := replace(at.pair, value); err != nil {
			return nil, err
		}
	case at.empty != nil:
		n := at.empty.Key.GetToken().Position
		return verify(content, afterLine(content, n.Line, snippet(at.under, value, n.Column+1)), key, false)
	case at.section == body && !body.IsFlowStyle:
		return verify(content, withLines(content, snippet(key, value, 0)), key, false)
	default:
		_, added, err := parse([]byte(snippet(at.under, value, 0)))
		if err != nil {
			return nil, err
		}
		if at.section.IsFlowStyle {
			added.SetIsFlowStyle(true)
		}
		at.section.Merge(added)
	}
	return verify(content, splice(content, before, file.String()), key, false)
}

// Unset returns the content without a key, and without sections that contained
// nothing else. It returns the content itself if the key is not set.
func Unset(content []byte, key string) ([]byte, error) {
	return asWritten(content, func(content []byte) ([]byte, error) { return unset(content, key) })
}

func unset(content []byte, key string) ([]byte, error) {
	file, body, err := parse(content)
	if err != nil || body == nil {
		return content, err
	}
	at := find(body, key)
	if at.pair == nil {
		return content, nil
	}
	before := file.String()
	gone := at.pair
	for i := len(at.parents) - 1; i >= 0; i-- {
		section := at.parents[i]
		var rest []*ast.MappingValueNode
		for _, p := range section.Values {
			if p != gone {
				rest = append(rest, p)
			}
		}
		if len(rest) > 0 || i == 0 {
			section.Values = rest
			break
		}
		for _, p := range at.parents[i-1].Values {
			if p.Value == ast.Node(section) {
				gone = p
			}
		}
	}
	after := file.String()
	if len(body.Values) == 0 {
		after = ""
	}
	return verify(content, splice(content, before, after), key, true)
}

// parse returns the document and its settings, which are nil if there are none.
func parse(content []byte) (*ast.File, *ast.MappingNode, error) {
	file, err := parser.ParseBytes(content, parser.ParseComments)
	if err != nil {
		return nil, nil, ErrByHand
	}
	var body *ast.MappingNode
	for _, doc := range file.Docs {
		switch n := doc.Body.(type) {
		case nil, *ast.NullNode, *ast.DirectiveNode, *ast.CommentGroupNode:
		case *ast.MappingNode:
			if body != nil {
				return nil, nil, ErrByHand
			}
			body = n
		default:
			return nil, nil, ErrByHand
		}
	}
	return file, body, nil
}

// find looks a key up. A key of a section may be written with dots, too.
func find(body *ast.MappingNode, key string) spot {
	at := spot{section: body, under: key, parents: []*ast.MappingNode{body}}
	for {
		next := (*ast.MappingValueNode)(nil)
		for _, p := range at.section.Values {
			name := p.Key.GetToken().Value
			if name == at.under {
				at.pair = p
				return at
			}
			if strings.HasPrefix(at.under, name+".") {
				next = p
			}
		}
		if next == nil {
			return at
		}
		at.under = strings.TrimPrefix(at.under, next.Key.GetToken().Value+".")
		switch v := next.Value.(type) {
		case *ast.MappingNode:
			at.section, at.holder = v, next
			at.parents = append(at.parents, v)
		default:
			at.empty = next
			return at
		}
	}
}

// replace gives a pair another value and keeps the comment in its line.
func replace(pair *ast.MappingValueNode, value string) error {
	_, fresh, err := parse([]byte("x: " + value))
	if err != nil || fresh == nil || len(fresh.Values) != 1 {
		return ErrByHand
	}
	node := fresh.Values[0].Value
	if comment := pair.Value.GetComment(); comment != nil {
		if err := node.SetComment(comment); err != nil {
			return ErrByHand
		}
	}
	pair.Value = node
	return nil
}

// snippet returns lines that set a key, indented.
func snippet(key, value string, indent int) string {
	var b strings.Builder
	parts := strings.Split(key, ".")
	for i, part := range parts {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat(" ", indent+2*i), part)
		if i == len(parts)-1 {
			b.WriteString(" " + value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// withLines appends lines to content.
func withLines(content []byte, lines string) []byte {
	out := bytes.Clone(content)
	if len(out) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
		out = append(out, '\n')
	}
	return append(out, lines...)
}

// afterLine inserts lines after a line, which is counted from 1.
func afterLine(content []byte, n int, lines string) []byte {
	all := bytes.SplitAfter(content, []byte("\n"))
	n = min(n, len(all))
	return append(withLines(bytes.Join(all[:n], nil), lines), bytes.Join(all[n:], nil)...)
}

// splice applies to content the change between two printed forms of it: lines
// that did not change stay as the user wrote them.
func splice(content []byte, before, after string) []byte {
	original, old, fresh := strings.SplitAfter(string(content), "\n"), strings.SplitAfter(before, "\n"), strings.SplitAfter(after, "\n")
	for len(old) > len(original) && strings.TrimSpace(old[len(old)-1]) == "" { // the printer ends with a line break
		old = old[:len(old)-1]
	}
	if len(original) > len(old) && strings.TrimSpace(strings.Join(original[len(old):], "")) == "" {
		original = original[:len(old)]
	}
	if len(original) != len(old) {
		return []byte(after)
	}
	same := func(i, j int) bool { return strings.TrimRight(old[i], "\n") == strings.TrimRight(fresh[j], "\n") }
	head := 0
	for head < len(old) && head < len(fresh) && same(head, head) {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(fresh)-head && same(len(old)-1-tail, len(fresh)-1-tail) {
		tail++
	}
	middle := strings.Join(fresh[head:len(fresh)-tail], "")
	out := strings.Join(original[:head], "") + middle
	if end := strings.Join(original[len(original)-tail:], ""); end != "" {
		if out != "" && !strings.HasSuffix(out, "\n") {
			out += "\n"
		}
		out += end
	}
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	return []byte(out)
}

// verify returns the content after a change if nothing else changed.
func verify(before, after []byte, key string, unset bool) ([]byte, error) {
	old, err := flatten(before)
	if err != nil {
		return nil, err
	}
	fresh, err := flatten(after)
	if err != nil {
		return nil, err
	}
	if _, there := fresh[key]; there == unset {
		return nil, ErrByHand
	}
	delete(old, key)
	delete(fresh, key)
	if !maps.Equal(old, fresh) || !unset && !keepsComments(before, after) {
		return nil, ErrByHand
	}
	return after, nil
}

// flatten returns the value of every key, as it is printed.
func flatten(content []byte) (map[string]string, error) {
	_, body, err := parse(content)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	var walk func(prefix string, m *ast.MappingNode)
	walk = func(prefix string, m *ast.MappingNode) {
		for _, p := range m.Values {
			name := prefix + p.Key.GetToken().Value
			if section, ok := p.Value.(*ast.MappingNode); ok {
				walk(name+".", section)
				continue
			}
			if _, null := p.Value.(*ast.NullNode); null || p.Value == nil {
				continue // a section without anything in it
			}
			text := p.Value.String()
			if c := p.Value.GetComment(); c != nil {
				text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), strings.TrimSpace(c.String())))
			}
			out[name] += strings.TrimSpace(text) + "\n"
		}
	}
	if body != nil {
		walk("", body)
	}
	return out, nil
}

// keepsComments reports whether every comment is still there.
func keepsComments(before, after []byte) bool {
	left := map[string]int{}
	for _, t := range lexer.Tokenize(string(after)) {
		if t.Type == token.CommentType {
			left[strings.TrimSpace(t.Value)]++
		}
	}
	for _, t := range lexer.Tokenize(string(before)) {
		if t.Type == token.CommentType {
			if left[strings.TrimSpace(t.Value)]--; left[strings.TrimSpace(t.Value)] < 0 {
				return false
			}
		}
	}
	return true
}
