// Package invisible recognizes characters that a model reads but a person does
// not see: invisible ones, those that change the writing direction, tag
// characters, controls. In what an MCP server says about itself, they can hide
// instructions from whoever looks at it.
package invisible

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// invisible are the characters that display nothing, besides controls.
var invisible = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x00AD, Hi: 0x00AD, Stride: 1}, // soft hyphen
		{Lo: 0x034F, Hi: 0x034F, Stride: 1}, // combining grapheme joiner
		{Lo: 0x061C, Hi: 0x061C, Stride: 1}, // Arabic letter mark
		{Lo: 0x115F, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17B4, Hi: 0x17B5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x180B, Hi: 0x180F, Stride: 1}, // Mongolian selectors
		{Lo: 0x200B, Hi: 0x200F, Stride: 1}, // zero width, marks of direction
		{Lo: 0x2028, Hi: 0x202E, Stride: 1}, // separators, embeddings, overrides
		{Lo: 0x2060, Hi: 0x206F, Stride: 1}, // joiners, isolates, invisible operators
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xFE00, Hi: 0xFE0F, Stride: 1}, // variation selectors
		{Lo: 0xFEFF, Hi: 0xFEFF, Stride: 1}, // byte order mark
		{Lo: 0xFFA0, Hi: 0xFFA0, Stride: 1}, // halfwidth Hangul filler
		{Lo: 0xFFF0, Hi: 0xFFFB, Stride: 1}, // interlinear annotation
	},
	R32: []unicode.Range32{
		{Lo: 0x1BCA0, Hi: 0x1BCA3, Stride: 1}, // shorthand format controls
		{Lo: 0x1D173, Hi: 0x1D17A, Stride: 1}, // musical format controls
		{Lo: 0xE0000, Hi: 0xE0FFF, Stride: 1}, // tags, more variation selectors
	},
}

// Is reports whether a character is hidden if it follows prev. Joiners, and
// selectors between text and emoji, are legitimate after a character beyond
// ASCII, but not after one another.
func Is(prev, r rune) bool {
	switch {
	case r == '\n' || r == '\t' || r == '\r':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7F
	case r == 0x200C || r == 0x200D || r == 0xFE0E || r == 0xFE0F:
		return prev < utf8.RuneSelf || unicode.IsSpace(prev) || unicode.Is(invisible, prev)
	}
	return unicode.IsControl(r) || unicode.Is(invisible, r)
}

// In returns the hidden characters of a string, each once, in ascending order.
func In(s string) []rune {
	var found []rune
	each(s, func(r rune, hidden bool) {
		if hidden && !slices.Contains(found, r) && len(found) < 64 {
			found = append(found, r)
		}
	})
	slices.Sort(found)
	return found
}

// Names formats characters the way people look them up: U+200B, U+202E.
func Names(runes []rune) string {
	names := make([]string, len(runes))
	for i, r := range runes {
		names[i] = fmt.Sprintf("U+%04X", r)
	}
	return strings.Join(names, ", ")
}

// Strip returns s without its hidden characters.
func Strip(s string) string {
	return rewrite(s, func(*strings.Builder, rune) {})
}

// Escape returns s with its hidden characters in the form \u{202e}, safe for a
// terminal. Line feeds and tabs stay.
func Escape(s string) string {
	return rewrite(s, func(b *strings.Builder, r rune) { fmt.Fprintf(b, `\u{%x}`, r) })
}

// Line is Escape for output on one line: white space becomes spaces.
func Line(s string) string { return Escape(strings.Join(strings.Fields(s), " ")) }

func rewrite(s string, hide func(*strings.Builder, rune)) string {
	if clean(s) {
		return s
	}
	var b strings.Builder
	each(s, func(r rune, hidden bool) {
		switch {
		case hidden:
			hide(&b, r)
		case r != '\r':
			b.WriteRune(r)
		}
	})
	return b.String()
}

// clean reports whether there is nothing to rewrite, which is quick to see for
// most strings.
func clean(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c == 0x7F || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

func each(s string, yield func(r rune, hidden bool)) {
	var prev rune
	for _, r := range s {
		yield(r, Is(prev, r))
		prev = r
	}
}
