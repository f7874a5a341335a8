package toon

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// unescape resolves the escapes of §7.1 in what stood between quotes.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	out := make([]byte, 0, len(s))
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			return string(append(out, s...)), nil
		}
		out = append(out, s[:i]...)
		s = s[i+1:]
		if s == "" {
			return "", errors.New(`a string ends in a backslash`)
		}
		c := s[0]
		s = s[1:]
		switch c {
		case '"', '\\':
			out = append(out, c)
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hexRune(s)
			if !ok {
				return "", errors.New(`\u is not followed by four hexadecimal digits`)
			}
			if !utf8.ValidRune(r) {
				return "", errSurrogate
			}
			out = utf8.AppendRune(out, r)
			s = s[4:]
		default:
			return "", fmt.Errorf("a backslash before %q is not an escape", c)
		}
	}
}

// closingQuote returns where the string that s starts with ends, or -1.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// indexUnquoted returns where c first stands outside quotes, or -1. As in
// appendix B.3 every quote counts, also one inside of a word.
func indexUnquoted(s string, c byte) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case quoted && s[i] == '\\':
			i++
		case !quoted && s[i] == c:
			return i
		}
	}
	return -1
}

// trimSpaces removes spaces and nothing else: any other whitespace is content
// (§12).
func trimSpaces(s string) string { return strings.Trim(s, " ") }

// appendJSON writes v without superfluous space, and gives up with ErrTooLarge
// once dst exceeds limit.
func appendJSON(dst []byte, v value, limit int) ([]byte, error) {
	switch v.kind {
	case nullKind:
		dst = append(dst, "null"...)
	case falseKind:
		dst = append(dst, "false"...)
	case trueKind:
		dst = append(dst, "true"...)
	case numberKind:
		dst = append(dst, v.text...)
	case stringKind:
		dst = appendQuoted(dst, v.text)
	case arrayKind, objectKind:
		return appendJSONContainer(dst, v, limit)
	}
	if len(dst) > limit {
		return dst, &lineError{err: fmt.Errorf("%w: the JSON exceeds %d bytes", ErrTooLarge, limit)}
	}
	return dst, nil
}

func appendJSONContainer(dst []byte, v value, limit int) ([]byte, error) {
	opening, closing := byte('['), byte(']')
	if v.kind == objectKind {
		opening, closing = '{', '}'
	}
	dst = append(dst, opening)
	keys := v.keys()
	for i, item := range v.items() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if v.kind == objectKind {
			dst = append(appendQuoted(dst, keys[i]), ':')
		}
		var err error
		if dst, err = appendJSON(dst, item, limit); err != nil {
			return dst, err
		}
	}
	return append(dst, closing), nil
}
