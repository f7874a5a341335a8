package mcpserver

import (
	"math"
	"strings"
	"unicode/utf8"
)

// tokens estimates how many tokens s has for a model: the count of o200k_base
// to about a tenth for code, prose, tables and JSON, and rather more than that
// count, up to a third, for other scripts and random letters. TestTokens has the
// figures. An estimate needs no vocabulary of 20 MB in memory, and takes a few
// nanoseconds for each byte. Nothing has more tokens than bytes.
func tokens(s string) int { return count(s, math.MaxInt).tokens }

// counted is where counting ended, and with how many tokens.
type counted struct{ tokens, end int }

// count counts the tokens of s until there are more than limit. The end is that of
// the text that has at most limit.
func count(s string, limit int) counted {
	n := 0
	for i := 0; i < len(s); {
		size, cost := piece(s[i:])
		if n+cost > limit {
			return counted{n, i}
		}
		n, i = n+cost, i+size
	}
	return counted{n, len(s)}
}

// first returns the beginning of s that has at most n tokens.
func first(s string, n int) string { return s[:count(s, max(n, 0)).end] }

// last returns the end of s that has at most n tokens, or a little less.
func last(s string, n int) string {
	const most = 16 // bytes of a token that are worth a look
	switch {
	case n <= 0:
		return ""
	case n >= len(s):
		return s
	}
	if over := len(s) - n*most; over > 0 {
		for !utf8.RuneStart(s[over]) && over < len(s)-1 {
			over++
		}
		s = s[over:]
	}
	for extra := tokens(s) - n; extra > 0; {
		size, cost := piece(s)
		s, extra = s[size:], extra-cost
	}
	return s
}

// longestPiece bounds a piece, so that a cut can be near its place.
const longestPiece = 64

// piece returns the length of what stands at the beginning of s and belongs together
// for a tokenizer, and about how many tokens it is.
func piece(s string) (size, cost int) {
	c := s[0]
	switch {
	case c == ' ' && len(s) > 1 && (isLetter(s[1]) || isMark(s[1]) || s[1] >= utf8.RuneSelf && s[1] != 0xe2): // no box, arrow or dash
		size, cost = piece(s[1:]) // the space is part of the word
		return size + 1, cost
	case isLetter(c):
		return word(s)
	case isDigit(c):
		return run(s, 3, isDigit), 1
	case c == '\n' || c == '\r':
		return run(s, longestPiece, func(c byte) bool { return c == '\n' || c == '\r' }), 1
	case c == ' ' || c == '\t':
		n := run(s, longestPiece, func(d byte) bool { return d == c })
		if n > 1 && n < len(s) && s[n] != '\n' && s[n] != '\r' {
			n-- // the last one is part of a word, or a token of its own
		}
		return n, 1
	case isMark(c):
		return marks(s)
	case c < utf8.RuneSelf: // control characters
		return 1, 1
	}
	return other(s)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isMark(c byte) bool   { return '!' <= c && c <= '~' && !isLetter(c) && !isDigit(c) }

// run returns how many bytes at the beginning of s are of a kind, at most.
func run(s string, most int, is func(byte) bool) int {
	n := 0
	for n < len(s) && n < most && is(s[n]) {
		n++
	}
	return n
}

// word is capital letters and then small ones. A word that has pairs of letters
// which are rare in words is one of random letters: it has more tokens.
func word(s string) (size, cost int) {
	n := run(s, longestPiece, func(c byte) bool { return 'A' <= c && c <= 'Z' })
	capitals := n
	n += run(s[n:], longestPiece-n, func(c byte) bool { return 'a' <= c && c <= 'z' })
	rare := 0
	for i := 1; i < n; i++ {
		if !common[s[i-1]&31][s[i]&31] && (i < 2 || s[i] != s[i-1] || s[i] != s[i-2]) {
			rare++
		}
	}
	cost = 1 + (n-1)/9 + rare
	const longest = 20 // letters of a word; more are one letter or syllable many times, or words without spaces
	if capitals > 2 || n > longest {
		cost = max(cost, (n+2)/3)
	}
	return n, min(cost, n)
}

// marks are punctuation: the same one many times is few tokens, and so are two or
// three that often stand together.
func marks(s string) (size, cost int) {
	same := run(s, longestPiece, func(c byte) bool { return c == s[0] })
	if same > 2 {
		return same, 1 + same/16
	}
	if len(s) > 1 && isMark(s[1]) {
		return 2, 1
	}
	return 1, 1
}

// other is one character that is not ASCII.
func other(s string) (size, cost int) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size == 1:
		return 1, 1
	case r < 0x180, 0x1a0 <= r && r < 0x1b1, 0x1e00 <= r && r < 0x2070, 0x2190 <= r && r < 0x2194: // Latin, punctuation
		return size, 1
	case 0x370 <= r && r < 0x400: // Greek
		return letters(s, 3, 0x370, 0x400)
	case 0x400 <= r && r < 0x530: // Cyrillic
		return letters(s, 4, 0x400, 0x530)
	case 0x590 <= r && r < 0x700: // Hebrew, Arabic
		return letters(s, 2, 0x590, 0x700)
	case 0x900 <= r && r < 0xe80: // India, Thailand
		return letters(s, 2, 0x900, 0xe80)
	case 0x2500 <= r && r < 0x25a0: // boxes, blocks
		for size < 24 && strings.HasPrefix(s[size:], s[:3]) {
			size += 3
		}
		return size, 1
	case 0x3000 <= r && r < 0x3100, 0x4e00 <= r && r < 0xa000, 0xac00 <= r && r < 0xd7a4: // East Asia
		return size, 1
	case 0x1380 <= r && r < 0x1780, 0x1800 <= r && r < 0x1e00, 0x2340 <= r && r < 0x2500, 0x27c0 <= r && r < 0x3000: // Braille, signs for control characters, rare scripts
		return size, 3
	}
	return size, 2
}

// letters are up to n characters between two.
func letters(s string, n int, from, to rune) (size, cost int) {
	for ; n > 0 && size < len(s); n-- {
		r, one := utf8.DecodeRuneInString(s[size:])
		if r < from || r >= to {
			break
		}
		size += one
	}
	return size, 1
}

// common has the pairs of letters that are frequent in words, and in the names of
// programs.
var common = func() (table [32][32]bool) {
	for i, second := range pairs {
		for _, c := range second {
			table[i+1][c&31] = true
		}
	}
	return table
}()

// pairs has for each letter from a to z those that often follow it.
var pairs = [26]string{
	"bcdfgiklmnprstuvwxyz", "aeijlorsuy", "aehiklortuy", "adegilmorstuvy", "acdefgilmnopqrstvwxy", "aefiloruty", "aeghilnorsu", "aeiorty",
	"abcdefglmnoprstvz", "aeou", "aeilnsy", "adefiklmoptuvy", "abeilmopsuy", "acdefgijklnostuvy", "abcdefgiklmnoprstuvwxy", "aehiloprstuy", "u",
	"acdefgiklmnopqrstuvy", "aceghiklmnopqrstuwy", "aehilmorstuwxy", "abcdegilmnprstx", "aeiouy", "aehinorsy", "aceiopty", "acelmnopst", "aeiouyz",
}
