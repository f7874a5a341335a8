package toon

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseJSON reads one JSON document that stands depth levels deep. It differs
// from encoding/json in keeping the members' order and the numbers' digits, and
// in refusing lone surrogates and ill-formed UTF-8 rather than replacing them.
// Of members with the same key the last one counts.
func parseJSON(data []byte, depth int, opt Options) (value, error) {
	if len(data) > opt.MaxBytes {
		return value{}, &Error{Err: fmt.Errorf("%w: %d bytes of JSON, the limit is %d", ErrTooLarge, len(data), opt.MaxBytes)}
	}
	if !utf8.Valid(data) {
		return value{}, &Error{Err: errors.New("the JSON is not UTF-8")}
	}
	p := jsonParser{s: string(data), depth: depth, maxDepth: opt.MaxDepth}
	v, err := p.value()
	if err == nil {
		p.space()
		if p.i < len(p.s) {
			err = errors.New("content after the value")
		}
	}
	if err != nil {
		return value{}, &Error{Err: fmt.Errorf("JSON at offset %d: %w", p.i, err)}
	}
	return v, nil
}

type jsonParser struct {
	s        string
	i        int
	depth    int
	maxDepth int
}

var errJSON = errors.New("unexpected character or end")

func (p *jsonParser) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

// accept skips space and then c, if that comes next.
func (p *jsonParser) accept(c byte) bool {
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *jsonParser) value() (value, error) {
	p.space()
	if p.i == len(p.s) {
		return value{}, errJSON
	}
	switch p.s[p.i] {
	case '{':
		return p.nested(p.object)
	case '[':
		return p.nested(p.array)
	case '"':
		s, err := p.string()
		return value{kind: stringKind, text: s}, err
	case 'n':
		return p.literal("null", nullKind)
	case 'f':
		return p.literal("false", falseKind)
	case 't':
		return p.literal("true", trueKind)
	}
	return p.number()
}

func (p *jsonParser) literal(word string, k kind) (value, error) {
	if !strings.HasPrefix(p.s[p.i:], word) {
		return value{}, errJSON
	}
	p.i += len(word)
	return value{kind: k}, nil
}

func (p *jsonParser) nested(parse func() (value, error)) (value, error) {
	if p.depth++; p.depth > p.maxDepth {
		return value{}, fmt.Errorf("%w: the limit is %d", ErrTooDeep, p.maxDepth)
	}
	p.i++
	v, err := parse()
	p.depth--
	return v, err
}

func (p *jsonParser) array() (value, error) {
	var items []value
	if p.accept(']') {
		return newArray(nil), nil
	}
	for {
		v, err := p.value()
		if err != nil {
			return v, err
		}
		items = append(items, v)
		if p.accept(']') {
			return newArray(items), nil
		}
		if !p.accept(',') {
			return value{}, errJSON
		}
	}
}

func (p *jsonParser) object() (value, error) {
	var b objectBuilder
	if p.accept('}') {
		return b.object(), nil
	}
	for {
		p.space()
		key, err := p.string()
		if err != nil {
			return value{}, err
		}
		if !p.accept(':') {
			return value{}, errJSON
		}
		v, err := p.value()
		if err != nil {
			return v, err
		}
		b.set(key, v)
		if p.accept('}') {
			return b.object(), nil
		}
		if !p.accept(',') {
			return value{}, errJSON
		}
	}
}

func (p *jsonParser) number() (value, error) {
	end := p.i
	for end < len(p.s) && (isDigit(p.s[end]) || strings.IndexByte("+-.eE", p.s[end]) >= 0) {
		end++
	}
	if !isNumber(p.s[p.i:end]) {
		return value{}, errJSON
	}
	text, err := canonicalNumber(p.s[p.i:end])
	if err != nil {
		return value{}, err
	}
	p.i = end
	return value{kind: numberKind, text: text}, nil
}

func (p *jsonParser) string() (string, error) {
	if p.i == len(p.s) || p.s[p.i] != '"' {
		return "", errJSON
	}
	start := p.i + 1
	for i := start; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.i = i + 1
			return p.s[start:i], nil
		case c == '\\':
			return p.escapedString(start, i)
		case c < 0x20:
			p.i = i
			return "", errJSON
		}
	}
	return "", errUnterminated
}

// escapedString reads on from the first escape, at i, of the string that begins
// at start.
func (p *jsonParser) escapedString(start, i int) (string, error) {
	out := []byte(p.s[start:i])
	for i < len(p.s) {
		c := p.s[i]
		i++
		switch {
		case c == '"':
			p.i = i
			return string(out), nil
		case c < 0x20:
			p.i = i - 1
			return "", errJSON
		case c != '\\':
			out = append(out, c)
			continue
		}
		n, err := 0, error(nil)
		if out, n, err = appendJSONEscape(out, p.s[i:]); err != nil {
			p.i = i
			return "", err
		}
		i += n
	}
	return "", errUnterminated
}

// appendJSONEscape resolves the escape whose backslash precedes s, and returns how
// much of s belongs to it.
func appendJSONEscape(dst []byte, s string) ([]byte, int, error) {
	if s == "" {
		return dst, 0, errUnterminated
	}
	if i := strings.IndexByte(`"\/bfnrt`, s[0]); i >= 0 {
		return append(dst, "\"\\/\b\f\n\r\t"[i]), 1, nil
	}
	if s[0] != 'u' {
		return dst, 0, errJSON
	}
	r, ok := hexRune(s[1:])
	if !ok {
		return dst, 0, errJSON
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(dst, r), 5, nil
	}
	if strings.HasPrefix(s[5:], `\u`) {
		if low, ok := hexRune(s[7:]); ok {
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				return utf8.AppendRune(dst, r), 11, nil
			}
		}
	}
	return dst, 0, errSurrogate
}
