package invisible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// twins are letters of other alphabets that fonts draw as Latin ones.
var twins = func() map[rune]bool {
	out := map[rune]bool{}
	for _, r := range "аеорсухіјѕһԁԛԝӏґ" + "АВЕКМНОРСТУХІЈЅҺԌԚԜӀ" + // Cyrillic
		"ανορυιϲϳ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹͿ" + // Greek
		"օսհոցզՏՍՕԼ" + // Armenian
		"ᎪᏴᏟᎠᎬᎻᏆᎫᏦᏞᎷᏢᏒᏚᎢᏙᎳᏃ" { // Cherokee
		out[r] = true
	}
	return out
}()

// alphabets are those that have twins.
var alphabets = []*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu}

// signs are drawn as signs of ASCII that separate the parts of paths, addresses
// and names.
const signs = "\u2044\u2215\u29f8\u2571\u27cb\u29f5\u2216\ufe68\ua789\u2236\u02d0\ufe55\u2024\ufe52\u0589\u05c3\u2053\u02dc\u2223\u01c0\uff5e"

// dashes are drawn as a hyphen.
const dashes = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\u02d7\u1806"

// Mark is Escape that also shows which characters are not the ones of ASCII that
// they look like: other blanks and separators, letters in other styles, and letters
// of another alphabet in a word that has Latin letters, or that could be written in
// Latin letters alone. Text in any language is otherwise unchanged.
func Mark(s string) string {
	s = Escape(s)
	if ascii(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if !wordy(r) {
			if strings.ContainsRune(signs, r) || r > unicode.MaxASCII && unicode.IsSpace(r) || folds(r) {
				fmt.Fprintf(&b, `\u{%x}`, r)
			} else {
				b.WriteString(s[:n])
			}
			s = s[n:]
			continue
		}
		end := strings.IndexFunc(s, func(r rune) bool { return !wordy(r) })
		if end < 0 {
			end = len(s)
		}
		word(&b, s[:end])
		s = s[end:]
	}
	return b.String()
}

// wordy reports whether a character belongs to a word.
func wordy(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || r == '_' || strings.ContainsRune(dashes, r)
}

// word writes a word.
func word(b *strings.Builder, w string) {
	latin, foreign, real := 0, 0, 0 // letters; real ones have no twin
	for _, r := range w {
		switch {
		case r <= unicode.MaxASCII && unicode.IsLetter(r):
			latin++
		case unicode.In(r, alphabets...):
			foreign++
			if !twins[r] {
				real++
			}
		}
	}
	dash := len([]rune(w)) > 1 // one by itself stands between words
	for _, r := range w {
		switch {
		case r <= unicode.MaxASCII:
			b.WriteRune(r)
		case folds(r),
			dash && strings.ContainsRune(dashes, r),
			unicode.In(r, alphabets...) && (latin > 0 || foreign > 1 && real == 0):
			fmt.Fprintf(b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
}

// folds reports whether a character is a letter, a digit or a sign of ASCII in
// another style: wide, bold, a superscript.
func folds(r rune) bool {
	if r <= unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsNumber(r) && (r < 0xFF01 || r > 0xFF5E) {
		return false
	}
	return ascii(norm.NFKC.String(string(r)))
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
