package toon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// How unmarshal reads a document.
const (
	strictly  = true // §14
	leniently = false
)

// lineError reports malformed TOON.
type lineError struct {
	line int // from 1; 0 where no line is to blame
	err  error
}

func (e *lineError) Error() string {
	if e.line == 0 {
		return "toon: " + e.err.Error()
	}
	return fmt.Sprintf("toon: line %d: %v", e.line, e.err)
}

func (e *lineError) Unwrap() error { return e.err }

// unmarshal decodes a document to compact JSON, in the order of the document's
// keys and with numbers in canonical form. A document without content is {}. It
// is how the tests check that Marshal loses nothing.
//
// The specification leaves these choices open, or open to decoders that are not
// strict:
//
//   - a malformed header is, when lenient, a member with a literal key, as the
//     fixtures have it; "foo [2]: x" is one always (§5.2), while "foo-bar[2]: x"
//     is an array although an encoder would have quoted the key (appendix B.2);
//   - a field's name in a header may be any text without quotes, braces, colons
//     and delimiters, unless it is quoted;
//   - lenient decoding ignores declared lengths and blank lines, rounds
//     indentation down and lets the last of two equal keys win, in the place of
//     the first;
//   - tabs in indentation, ill-formed UTF-8, rows of the wrong width, lines that
//     belong to no scope and content behind the document's root are errors even
//     then, because reading on would lose data in silence;
//   - a byte order mark at the start of a document is dropped.
func unmarshal(data []byte, opt Options, strict bool) (json.RawMessage, error) {
	opt, err := opt.resolve()
	if err != nil {
		return nil, err
	}
	if len(data) > opt.MaxBytes {
		return nil, &lineError{err: fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), opt.MaxBytes)}
	}
	text := strings.TrimPrefix(string(data), byteOrderMark)
	if !utf8.ValidString(text) {
		return nil, &lineError{line: illFormedLine(text), err: errors.New("ill-formed UTF-8")}
	}
	d := decoder{
		scanner:  scanner{rest: text, indent: opt.IndentSize, strict: strict},
		strict:   strict,
		maxDepth: opt.MaxDepth,
		budget:   opt.MaxBytes,
	}
	root := d.document()
	if d.err != nil {
		return nil, d.err
	}
	return appendJSON(make([]byte, 0, opt.MaxBytes-d.budget), root, opt.MaxBytes)
}

// illFormedLine returns the number of the first line that is not UTF-8.
func illFormedLine(text string) int {
	number := 0
	for l := range strings.Lines(text) {
		number++
		if !utf8.ValidString(l) {
			break
		}
	}
	return number
}

// decoder reads lines into values. The first error ends the input: from then on
// there are no further lines, so that every loop ends, and what the methods
// return is of no consequence.
type decoder struct {
	scanner  scanner
	strict   bool
	maxDepth int

	ahead  line // the next line, where loaded
	loaded bool
	spans  int // array spans (§12) that the next line would lie in
	depth  int // of the objects and arrays that are being read
	budget int // bytes of JSON that may yet come, at least
	err    error
}

// fail records the first error.
func (d *decoder) fail(l line, format string, args ...any) {
	if d.err == nil {
		d.err = &lineError{line: l.number, err: fmt.Errorf(format, args...)}
	}
}

// peek returns the next line, or false at the end and after an error.
func (d *decoder) peek() (line, bool) {
	if d.err != nil {
		return line{}, false
	}
	if !d.loaded {
		l, ok, err := d.scanner.next()
		if err != nil {
			d.fail(l, "%w", err)
		}
		if !ok {
			return line{}, false
		}
		d.ahead, d.loaded = l, true
	}
	return d.ahead, true
}

// take consumes the line that peek returned.
func (d *decoder) take() {
	d.loaded = false
	if d.strict && d.spans > 0 && d.ahead.blank > 0 {
		d.fail(line{number: d.ahead.blank}, "a blank line inside an array or table")
	}
}

// spend accounts for n bytes of JSON. It bounds what a short document can expand
// to, by long keys of many rows above all.
func (d *decoder) spend(l line, n int) {
	if d.budget -= n; d.budget < 0 {
		d.fail(l, "%w: the JSON exceeds the limit", ErrTooLarge)
	}
}

// enter and leave enclose the reading of an object or array, with objects inside
// of it that nest as deep as further says.
func (d *decoder) enter(l line, further int) {
	d.depth++
	if d.depth+further > d.maxDepth {
		d.fail(l, "%w: the limit is %d", ErrTooDeep, d.maxDepth)
	}
	d.spend(l, len("{}"))
}

func (d *decoder) leave() { d.depth-- }

func (d *decoder) empty(l line, k kind) value {
	d.enter(l, 0)
	d.leave()
	return value{kind: k}
}

// document reads all lines (§5).
func (d *decoder) document() value {
	first, ok := d.peek()
	if !ok {
		return value{kind: objectKind}
	}
	if first.depth > 0 {
		d.fail(first, "the first line is indented")
	}
	d.take()
	var root value
	if h, ok := d.header(first); ok && !h.named {
		root = d.block(first, h, 0)
	} else if _, more := d.peek(); !more && first.text != "[]" && indexUnquoted(first.text, ':') < 0 {
		return d.scalar(first, first.text)
	} else if first.text == "[]" {
		root = d.empty(first, arrayKind)
	} else {
		root = d.object(&first, 0)
	}
	if l, more := d.peek(); more {
		d.fail(l, "content behind the end of the document's value")
	}
	return root
}

// header parses l as a header. A malformed one is an error or, when lenient, none.
func (d *decoder) header(l line) (header, bool) {
	h, ok, err := parseHeader(l.text, d.maxDepth)
	if err == nil && ok && h.fields != nil && h.fields.repeats && d.strict {
		err = fmt.Errorf("duplicate field %.40q", h.fields.duplicate)
	}
	if err != nil && (d.strict || errors.Is(err, ErrTooDeep)) {
		d.fail(l, "%w", err)
	}
	return h, ok && err == nil
}

// object reads the fields that stand at depth. The first one has been taken
// already where first is given.
func (d *decoder) object(first *line, depth int) value {
	var b objectBuilder
	l, more := line{}, true
	if first != nil {
		l = *first
	} else if l, more = d.peek(); more {
		d.take()
	}
	d.enter(l, 0)
	for more {
		d.field(&b, l, depth)
		if l, more = d.peek(); !more || l.depth < depth {
			break
		}
		if l.depth > depth {
			d.fail(l, "the line is indented more than its object's fields")
		}
		d.take()
	}
	d.leave()
	return b.object()
}

// field reads a member, whose line l stands at depth.
func (d *decoder) field(b *objectBuilder, l line, depth int) {
	if h, ok := d.header(l); ok {
		if h.named {
			d.set(b, l, h.key, d.block(l, h, depth))
			return
		}
		if d.strict {
			d.fail(l, "a header without a key stands where a field must be")
		}
	}
	key, rest, ok := d.splitKey(l)
	if !ok {
		return
	}
	switch rest {
	case "":
		next, ok := d.peek()
		if !ok || next.depth <= depth {
			d.set(b, l, key, d.empty(l, objectKind))
			return
		}
		d.set(b, l, key, d.object(nil, d.contentDepth(next, depth)))
	case "[]":
		d.set(b, l, key, d.empty(l, arrayKind))
	default:
		d.set(b, l, key, d.scalar(l, rest))
	}
}

// set adds a member to an object (§14.3).
func (d *decoder) set(b *objectBuilder, l line, key string, v value) {
	if d.strict && b.find(key) >= 0 {
		d.fail(l, "duplicate key %.40q", key)
	}
	d.spend(l, len(key)+len(`"":,`))
	b.set(key, v)
}

// splitKey splits a line behind the colon that ends its key (§7.4).
func (d *decoder) splitKey(l line) (key, rest string, ok bool) {
	colon := indexUnquoted(l.text, ':')
	if colon < 0 {
		d.fail(l, "%.40q has no colon behind a key", l.text)
		return "", "", false
	}
	key, err := parseKey(trimSpaces(l.text[:colon]))
	if err != nil {
		d.fail(l, "%w", err)
	}
	return key, trimSpaces(l.text[colon+1:]), err == nil
}

// contentDepth is the depth of a scope whose first line is l and whose opening
// line stands at depth (§8). Lenient decoding lets it be deeper than one level.
func (d *decoder) contentDepth(l line, depth int) int {
	if d.strict && l.depth > depth+1 {
		d.fail(l, "the line is indented by more than one level")
	}
	return l.depth
}

// block reads what the header in line l introduces, where l stands at depth.
func (d *decoder) block(l line, h header, depth int) value {
	height := 0
	if h.fields != nil {
		height = h.fields.height
	}
	d.enter(l, height)
	defer d.leave()

	if h.keyed {
		var b objectBuilder
		d.scope(l, h, depth, func(l line) {
			if key, rest, ok := d.splitKey(l); ok {
				d.set(&b, l, key, d.row(l, h, rest))
			}
		})
		return b.object()
	}
	var items []value
	switch {
	case h.fields != nil:
		d.scope(l, h, depth, func(l line) {
			if !isRow(l.text, h.delimiter) {
				d.fail(l, "a field stands where a row must be")
			}
			items = append(items, d.row(l, h, l.text))
		})
	case h.inline != "":
		n := countCells(h.inline, h.delimiter)
		if d.strict && n != h.length {
			d.fail(l, "the header declares %d, but there are %d", h.length, n)
			break
		}
		items = d.cells(l, h, h.inline, n)
	default:
		d.scope(l, h, depth, func(l line) { items = append(items, d.item(l)) })
	}
	return newArray(items)
}

// scope calls each with the lines at the content depth of the header in line l,
// which stands at depth.
func (d *decoder) scope(l line, h header, depth int, each func(line)) {
	count, content := 0, 0
	for next, ok := d.peek(); ok && next.depth > depth; next, ok = d.peek() {
		if count == 0 {
			content = d.contentDepth(next, depth)
		}
		if next.depth != content {
			d.fail(next, "the line is not indented as the lines before it")
		}
		if d.strict && count == h.length {
			d.fail(next, "line %d declares %d, but there is more", l.number, h.length)
		}
		d.take()
		if count++; count == 1 {
			d.spans++
			defer func() { d.spans-- }()
		}
		each(next)
	}
	if d.strict && count != h.length {
		d.fail(l, "the header declares %d, but there are %d", h.length, count)
	}
}

// isRow tells a row from a field that ends the table (§9.3).
func isRow(text string, delimiter byte) bool {
	colon := indexUnquoted(text, ':')
	if colon < 0 {
		return true
	}
	cell := indexUnquoted(text, delimiter)
	return cell >= 0 && cell < colon
}

// row reads a row's cells into an object.
func (d *decoder) row(l line, h header, text string) value {
	n := countCells(text, h.delimiter)
	if n != h.fields.leaves {
		d.fail(l, "the row has %d cells, its header %d fields", n, h.fields.leaves)
		return value{}
	}
	d.spend(l, h.fields.size)
	return h.fields.object(d.cells(l, h, text, n))
}

// countCells returns how many cells text holds. No text is no cells.
func countCells(text string, delimiter byte) int {
	if text == "" {
		return 0
	}
	n := 1
	for i := indexUnquoted(text, delimiter); i >= 0; i = indexUnquoted(text, delimiter) {
		n++
		text = text[i+1:]
	}
	return n
}

// cells splits text, which holds n cells, at the header's delimiter (§11.2).
func (d *decoder) cells(l line, h header, text string, n int) []value {
	items := make([]value, n)
	for i := range items {
		cell := text
		if end := indexUnquoted(text, h.delimiter); end >= 0 {
			cell, text = text[:end], text[end+1:]
		}
		items[i] = d.scalar(l, cell)
	}
	return items
}

// item reads an element of a list from its line (§9.4, §10).
func (d *decoder) item(l line) value {
	depth := l.depth
	rest, ok := strings.CutPrefix(l.text, "-")
	if !ok || rest != "" && rest[0] != ' ' {
		d.fail(l, "%.40q stands where a list item must be", l.text)
		return value{}
	}
	l.text = trimSpaces(rest)
	switch l.text {
	case "":
		return d.empty(l, objectKind)
	case "[]":
		return d.empty(l, arrayKind)
	}
	h, ok := d.header(l)
	switch {
	case ok && !h.named && h.fields == nil:
		return d.block(l, h, depth)
	case indexUnquoted(l.text, ':') >= 0:
		return d.object(&l, depth+1)
	}
	return d.scalar(l, l.text)
}

// scalar reads a token (§4).
func (d *decoder) scalar(l line, token string) value {
	token = trimSpaces(token)
	d.spend(l, len(token)+len(","))
	switch {
	case strings.HasPrefix(token, `"`):
		s, err := parseKey(token)
		if err != nil {
			d.fail(l, "%w", err)
		}
		return value{kind: stringKind, text: s}
	case token == "null":
		return value{kind: nullKind}
	case token == "false":
		return value{kind: falseKind}
	case token == "true":
		return value{kind: trueKind}
	case isNumber(token):
		number, err := canonicalNumber(token)
		if err != nil {
			d.fail(l, "%w", err)
		}
		return value{kind: numberKind, text: number}
	}
	d.spend(l, len(`""`))
	return value{kind: stringKind, text: token}
}
