package toon

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// header is what §6 describes: "key[2|]{a|b}:" and its variants.
type header struct {
	key       string
	named     bool // has a key
	keyed     bool // introduces an object of rows with names
	length    int  // as declared; saturated, so only fit for comparison
	delimiter byte
	fields    *fields // nil where there is no fields segment
	inline    string  // what follows the colon
}

// fields is a fields segment, or a group inside of one.
type fields struct {
	names     []string
	groups    []*fields // by name; nil for a leaf
	leaves    int       // the cells of a row
	height    int       // how deep the objects that a row becomes nest
	size      int       // what a row's keys and braces cost as JSON, at least
	duplicate string    // a name that occurs twice in one group
	repeats   bool      // whether duplicate is set here or in a group
}

// parseHeader reads a line that may be a header. ok is false where it is none;
// with an error, it is one in intent but malformed. Field groups may nest up to
// maxDepth.
func parseHeader(text string, maxDepth int) (h header, ok bool, err error) {
	open := 0
	if text[0] == '"' {
		open = closingQuote(text) + 1
		if open == 0 || open == len(text) || text[open] != '[' {
			return h, false, nil
		}
	} else {
		open = indexUnquoted(text, '[')
		if open < 0 || open > 0 && strings.IndexByte(" \t", text[open-1]) >= 0 {
			return h, false, nil
		}
	}
	if colon := indexUnquoted(text, ':'); colon < open {
		return h, false, nil // no colon at all, or a key that ends before the bracket
	}
	if h.named = open > 0; h.named {
		if h.key, err = parseKey(text[:open]); err != nil {
			return h, false, err
		}
	}

	segment, rest, closed := strings.Cut(text[open+1:], "]")
	if !closed {
		return h, false, errors.New("a header's bracket is not closed")
	}
	if err = h.parseLength(segment); err != nil {
		return h, false, err
	}
	if strings.HasPrefix(rest, "{") {
		p := fieldParser{rest: rest, delimiter: h.delimiter, maxDepth: maxDepth}
		if h.fields, err = p.group(); err != nil {
			return h, false, err
		}
		rest = p.rest
	}
	inline, ok := strings.CutPrefix(rest, ":")
	h.inline = trimSpaces(inline)
	switch {
	case !ok:
		return h, false, fmt.Errorf("%.40q stands where a header's colon must be", rest)
	case h.keyed && h.fields == nil:
		return h, false, errors.New("a keyed header has no fields")
	case h.fields != nil && h.inline != "":
		return h, false, errors.New("content behind the colon of a header with fields")
	}
	return h, true, nil
}

// parseLength reads what stands between a header's brackets.
func (h *header) parseLength(segment string) error {
	s := segment
	h.delimiter = byte(Comma)
	if s != "" && (s[len(s)-1] == byte(Tab) || s[len(s)-1] == byte(Pipe)) {
		h.delimiter = s[len(s)-1]
		s = s[:len(s)-1]
	}
	s, h.keyed = strings.CutSuffix(s, ":")
	if s == "" || digits(s, 0) != len(s) || s[0] == '0' && len(s) > 1 {
		return fmt.Errorf("%.40q is not a length", segment)
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		n = math.MaxInt
	}
	h.length = n
	return nil
}

// parseKey reads a key, quoted or not, that has no colon with it.
func parseKey(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	switch closingQuote(s) {
	case len(s) - 1:
		return unescape(s[1 : len(s)-1])
	case -1:
		return "", errUnterminated
	}
	return "", errors.New("content behind a closing quote")
}

// fieldParser reads a fields segment from the front of rest.
type fieldParser struct {
	rest      string
	delimiter byte
	depth     int
	maxDepth  int
}

func (p *fieldParser) group() (*fields, error) {
	if p.depth++; p.depth > p.maxDepth {
		return nil, fmt.Errorf("%w: the limit is %d", ErrTooDeep, p.maxDepth)
	}
	f := &fields{height: 1, size: len("{}")}
	seen := map[string]bool{}
	for {
		p.rest = p.rest[1:] // the brace or delimiter
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		var group *fields
		if strings.HasPrefix(p.rest, "{") {
			if group, err = p.group(); err != nil {
				return nil, err
			}
		}
		p.rest = strings.TrimLeft(p.rest, " ")
		if seen[name] && !f.repeats {
			f.duplicate, f.repeats = name, true
		}
		seen[name] = true
		f.add(name, group)

		switch {
		case p.rest == "":
			return nil, errors.New("a header's brace is not closed")
		case p.rest[0] == '}':
			p.rest = p.rest[1:]
			p.depth--
			return f, nil
		case p.rest[0] != p.delimiter:
			return nil, fmt.Errorf("%.40q stands where a header's delimiter must be", p.rest)
		}
	}
}

func (f *fields) add(name string, group *fields) {
	f.names = append(f.names, name)
	f.groups = append(f.groups, group)
	f.size += len(name) + len(`"":,`)
	if group == nil {
		f.leaves++
		return
	}
	f.leaves += group.leaves
	f.size += group.size
	f.height = max(f.height, group.height+1)
	if group.repeats && !f.repeats {
		f.duplicate, f.repeats = group.duplicate, true
	}
}

// name reads a field's name up to what ends it. A delimiter other than the
// header's would make the rows be read wrongly, so it ends a name too, as an
// error.
func (p *fieldParser) name() (string, error) {
	p.rest = strings.TrimLeft(p.rest, " ")
	if strings.HasPrefix(p.rest, `"`) {
		end := closingQuote(p.rest)
		if end < 0 {
			return "", errUnterminated
		}
		name := p.rest[1:end]
		p.rest = p.rest[end+1:]
		return unescape(name)
	}
	end := strings.IndexAny(p.rest, "{},\t|\":")
	if end < 0 {
		end = len(p.rest)
	}
	name := strings.TrimRight(p.rest[:end], " ")
	spaced := len(name) < end
	p.rest = p.rest[end:]
	switch {
	case name == "":
		return "", errors.New("a header's field has no name")
	case spaced && strings.HasPrefix(p.rest, "{"):
		return "", errors.New("a space before a header's field group")
	}
	return name, nil
}

// object makes a row's object of its cells, which it keeps. All rows share the
// names.
func (f *fields) object(cells []value) value {
	if f.height == 1 && !f.repeats {
		return newObject(f.names, cells)
	}
	items := make([]value, len(f.names))
	for i, group := range f.groups {
		if group == nil {
			items[i], cells = cells[0], cells[1:]
			continue
		}
		items[i], cells = group.object(cells[:group.leaves]), cells[group.leaves:]
	}
	if !f.repeats {
		return newObject(f.names, items)
	}
	var b objectBuilder
	for i, name := range f.names {
		b.set(name, items[i])
	}
	return b.object()
}
