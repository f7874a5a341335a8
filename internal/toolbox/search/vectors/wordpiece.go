package vectors

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// longestWord is the maximum number of characters in a word; the model's
// tokenizer does not split longer ones either.
const longestWord = 100

// pieces calls f with the row of every word piece of a string, split as the
// sentence model's own tokenizer does: in lower case, without accents, with
// punctuation and ideographs separate, then repeatedly the longest known piece.
// A word that cannot be split has the row of [UNK].
func (t *table) pieces(text string, f func(row int)) {
	if !plainASCII(text) {
		text = normal(text)
	}
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case blank(r):
			text = text[size:]
			continue
		case punctuation(r):
			t.word(text[:size], f)
			text = text[size:]
			continue
		}
		end := strings.IndexFunc(text, func(r rune) bool { return blank(r) || punctuation(r) })
		if end < 0 {
			end = len(text)
		}
		t.word(text[:end], f)
		text = text[end:]
	}
}

// word splits one word. It may contain capitals only if it is ASCII.
func (t *table) word(word string, f func(row int)) {
	if utf8.RuneCountInString(word) > longestWord {
		f(t.unknown)
		return
	}
	word = strings.ToLower(word)
	// Rows are reported once the whole word is known to be splittable.
	var rows [longestWord]int32
	var hashes [4 * longestWord]hash // of what begins at start and ends after a byte
	n := 0
	for start := 0; start < len(word); n++ {
		h := begins
		if start > 0 {
			h = goesOn
		}
		for i := start; i < len(word); i++ {
			h = h.and(word[i])
			hashes[i] = h
		}
		row, end := -1, len(word)
		for ; end > start; end-- {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			if row = t.row(hashes[end-1], start > 0, word[start:end]); row >= 0 {
				break
			}
		}
		if row < 0 {
			f(t.unknown)
			return
		}
		rows[n] = int32(row)
		start = end
	}
	for _, row := range rows[:n] {
		f(int(row))
	}
}

// plainASCII reports whether a string needs no normalization except lower case.
func plainASCII(text string) bool {
	for i := 0; i < len(text); i++ {
		if c := text[i]; c >= 0x7f || c < ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return true
}

// normal drops control characters and accents, separates ideographs, and
// changes to lower case.
func normal(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		switch {
		case r == utf8.RuneError || control(r):
		case blank(r):
			b.WriteByte(' ')
		case ideograph(r):
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	text = norm.NFD.String(b.String())
	b.Reset()
	for _, r := range text {
		if !unicode.Is(unicode.Mn, r) {
			b.WriteRune(r)
		}
	}
	return strings.ToLower(b.String())
}

func control(r rune) bool {
	if r == '\t' || r == '\n' || r == '\r' {
		return false
	}
	return unicode.Is(unicode.C, r)
}

func blank(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r >= 0x80 && unicode.Is(unicode.White_Space, r)
}

func punctuation(r rune) bool {
	if r < 0x80 {
		return r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~'
	}
	return unicode.IsPunct(r)
}

// ideograph is the tokenizer's own list of blocks.
func ideograph(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df ||
		r >= 0x2a700 && r <= 0x2b73f || r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b920 && r <= 0x2ceaf ||
		r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}
