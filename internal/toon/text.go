package toon

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

var (
	errUnterminated = errors.New("a string has no closing quote")
	errSurrogate    = errors.New("a string contains a lone surrogate")
)

// appendQuoted writes s in quotes. The escapes of §7.1 are a subset of JSON's, so
// both notations use it.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

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

// hexRune reads four hexadecimal digits.
func hexRune(s string) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for i := range 4 {
		c := s[i] | 0x20 // lower case; digits keep their value
		switch {
		case isDigit(s[i]):
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
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

// unquotedValue reports whether a string value may stand without quotes (§7.2).
func unquotedValue(s string, delimiter Delimiter) bool {
	if s == "" || s == "true" || s == "false" || s == "null" {
		return false
	}
	switch s[0] {
	case ' ', '-', '#':
		return false
	}
	if s[len(s)-1] == ' ' || looksNumeric(s) {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case ':', '"', '\\', '[', ']', '{', '}', byte(delimiter):
			return false
		default:
			if c < 0x20 {
				return false
			}
		}
	}
	return true
}

// unquotedKey reports whether a key may stand without quotes (§7.3).
func unquotedKey(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || !isDigit(c) && c != '.') {
			return false
		}
	}
	return s != ""
}
