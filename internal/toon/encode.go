package toon

import (
	"fmt"
	"strconv"
	"strings"
)

// byteOrderMark may precede a document and is not part of it.
const byteOrderMark = "\ufeff"

// Marshal encodes v, without a newline at the end.
//
// A json.RawMessage is encoded as the JSON that it is, in the order of its
// members. A map[string]any is encoded in the order of its sorted keys. In it, in
// a []any and alone, a float that is NaN or infinite becomes null. Any other value is
// encoded as encoding/json would have it. An empty object yields no output.
//
// Equal input gives equal output. The result is an error rather than a document
// that would not decode to v.
func Marshal(v any, opt Options) ([]byte, error) {
	opt, err := opt.resolve()
	if err != nil {
		return nil, err
	}
	root, err := valueOf(v, 0, opt)
	if err != nil {
		return nil, err
	}
	e := encoder{indent: opt.IndentSize, delimiter: opt.Delimiter, limit: opt.MaxBytes}
	e.root(root)
	if e.tooLarge() {
		return nil, &Error{Err: fmt.Errorf("%w: the document exceeds %d bytes", ErrTooLarge, e.limit)}
	}
	return e.out, nil
}

// encoder writes a document. Each of its methods continues the current line, and
// depth is the level on which what it writes stands. Past the limit it writes no
// further lines.
type encoder struct {
	out       []byte
	indent    int
	delimiter Delimiter
	limit     int
}

func (e *encoder) tooLarge() bool { return len(e.out) > e.limit }

func (e *encoder) write(s string) { e.out = append(e.out, s...) }

// line begins a line.
func (e *encoder) line(depth int) {
	if len(e.out) > 0 {
		e.out = append(e.out, '\n')
	}
	for range depth * e.indent {
		e.out = append(e.out, ' ')
	}
}

func (e *encoder) root(v value) {
	switch {
	case v.kind == arrayKind && v.kids == nil:
		e.write("[]")
	case v.kind == arrayKind:
		e.array(v, 0, newTable(v.items()))
	case v.kind == objectKind:
		if t := keyedTable(v); t != nil {
			e.keyed(v, t, 0)
			return
		}
		e.fields(v, 0)
	case strings.HasPrefix(v.text, byteOrderMark):
		e.out = appendQuoted(e.out, v.text)
	default:
		e.scalar(v)
	}
}

// fields writes an object's members, each on a new line.
func (e *encoder) fields(v value, depth int) {
	for i, key := range v.keys() {
		if e.tooLarge() {
			return
		}
		e.line(depth)
		e.field(key, v.items()[i], depth)
	}
}

// field writes a member, which may extend over further lines.
func (e *encoder) field(key string, v value, depth int) {
	e.key(key)
	switch {
	case v.isScalar():
		e.write(": ")
		e.scalar(v)
	case v.kind == arrayKind && v.kids == nil:
		e.write(": []")
	case v.kind == arrayKind:
		e.array(v, depth, newTable(v.items()))
	default:
		if t := keyedTable(v); t != nil {
			e.keyed(v, t, depth)
			return
		}
		e.write(":")
		e.fields(v, depth+1)
	}
}

// array writes an array behind its key, if it has one. Where t is nil it does not
// become a table.
func (e *encoder) array(v value, depth int, t *table) {
	items := v.items()
	e.length(len(items), false)
	if t != nil {
		e.names(t)
		e.write(":")
		for i := range t.rows {
			if e.tooLarge() {
				return
			}
			e.line(depth + 1)
			e.cells(t, i, true)
		}
		return
	}
	e.write(":")
	if allScalars(items) {
		for i, item := range items {
			if i == 0 {
				e.write(" ")
			} else {
				e.out = append(e.out, byte(e.delimiter))
			}
			e.scalar(item)
		}
		return
	}
	for _, item := range items {
		if e.tooLarge() {
			return
		}
		e.line(depth + 1)
		e.item(item, depth+1)
	}
}

func allScalars(items []value) bool {
	for _, item := range items {
		if !item.isScalar() {
			return false
		}
	}
	return true
}

// item writes an element of a list. A field on the hyphen's line counts as one
// level deeper than the hyphen (§10), and an array without a key has no table
// form here (§9.4).
func (e *encoder) item(v value, depth int) {
	if v.kind == objectKind && v.kids == nil {
		e.write("-")
		return
	}
	e.write("- ")
	switch v.kind {
	case arrayKind:
		e.array(v, depth, nil)
	case objectKind:
		for i, key := range v.keys() {
			if e.tooLarge() {
				return
			}
			if i > 0 {
				e.line(depth + 1)
			}
			e.field(key, v.items()[i], depth+1)
		}
	default:
		e.scalar(v)
	}
}

// keyed writes an object as a table behind its key, if it has one.
func (e *encoder) keyed(v value, t *table, depth int) {
	e.length(len(t.rows), true)
	e.names(t)
	e.write(":")
	for i, key := range v.keys() {
		if e.tooLarge() {
			return
		}
		e.line(depth + 1)
		e.key(key)
		e.write(": ")
		e.cells(t, i, true)
	}
}

// length writes a header's bracket segment (§6).
func (e *encoder) length(n int, keyed bool) {
	e.write("[")
	e.out = strconv.AppendInt(e.out, int64(n), 10)
	if keyed {
		e.write(":")
	}
	if e.delimiter != Comma {
		e.out = append(e.out, byte(e.delimiter))
	}
	e.write("]")
}

// names writes a header's fields segment (§6).
func (e *encoder) names(t *table) {
	e.write("{")
	for i, name := range t.names {
		if i > 0 {
			e.out = append(e.out, byte(e.delimiter))
		}
		e.key(name)
		if t.groups[i] != nil {
			e.names(t.groups[i])
		}
	}
	e.write("}")
}

// cells writes row i of a table; first tells that no cell precedes them.
func (e *encoder) cells(t *table, i int, first bool) {
	for j, item := range t.rows[i].items() {
		if t.groups[j] != nil {
			e.cells(t.groups[j], i, first)
		} else {
			if !first {
				e.out = append(e.out, byte(e.delimiter))
			}
			e.scalar(item)
		}
		first = false
	}
}

func (e *encoder) key(key string) {
	if unquotedKey(key) {
		e.write(key)
		return
	}
	e.out = appendQuoted(e.out, key)
}

func (e *encoder) scalar(v value) {
	switch {
	case v.kind == nullKind:
		e.write("null")
	case v.kind == falseKind:
		e.write("false")
	case v.kind == trueKind:
		e.write("true")
	case v.kind == numberKind || unquotedValue(v.text, e.delimiter):
		e.write(v.text)
	default:
		e.out = appendQuoted(e.out, v.text)
	}
}
