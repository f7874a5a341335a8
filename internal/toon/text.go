package toon

import "errors"

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
