package search

import (
	"strings"
	"unicode"

	"github.com/kljensen/snowball/english"
	"golang.org/x/text/unicode/norm"
)

// maxWord is the maximum length of a word; the rest of a longer one is ignored.
const maxWord = 64

// words calls f with the words of a string in order: runs of letters and
// digits, split at the word boundaries of identifiers (camelCase, snake_case,
// HTTPServer), in lower case and without accents. For scripts without spaces
// between words it uses pairs of adjacent characters instead.
func words(text string, f func(word string)) {
	text = plain(text)
	start, i := -1, 0
	var before, last rune
	emit := func(end int) {
		if start >= 0 {
			f(strings.ToLower(text[start:min(end, start+maxWord)]))
		}
		start = -1
	}
	for at, r := range text {
		switch {
		case spaceless(r):
			emit(at)
			if spaceless(last) {
				f(string([]rune{last, r}))
			} else if next, _ := runeAfter(text, at); !spaceless(next) {
				f(string(r))
			}
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			emit(at)
		case start < 0:
			start = at
		case unicode.IsUpper(r) && (unicode.IsLower(last) || unicode.IsDigit(last)):
			emit(at)
			start = at
		case unicode.IsLower(r) && unicode.IsUpper(last) && unicode.IsUpper(before):
			// The last capital of a run belongs to the word that it begins.
			emit(i)
			start = i
		}
		before, last, i = last, r, at
	}
	emit(len(text))
}

// plain returns text without accents. Most text has none, and is not copied.
func plain(text string) string {
	ascii := true
	for i := 0; i < len(text) && ascii; i++ {
		ascii = text[i] < 0x80
	}
	if ascii {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range norm.NFKD.String(strings.ToValidUTF8(text, " ")) {
		if !unicode.Is(unicode.Mn, r) {
			b.WriteRune(r)
		}
	}
	return norm.NFC.String(b.String())
}

func runeAfter(text string, at int) (rune, bool) {
	first := true
	for _, r := range text[at:] {
		if !first {
			return r, true
		}
		first = false
	}
	return 0, false
}

// spaceless reports whether a character's script is written without spaces.
func spaceless(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}

// stem returns a word's stem by Snowball's English rules. Words of other
// languages lose at most an ending that looks English, in documents and queries
// alike.
func stem(word string) string {
	for i := 0; i < len(word); i++ {
		if word[i] >= 0x80 {
			return word
		}
	}
	return english.Stem(word, true)
}

// stopWords say nothing about what a tool does.
var stopWords = set(`a an the this that these those it its itself he she his her hers him they them their
	theirs i me my mine we us our ours you your yours am is are was were be been being do does did done has have
	had having will would shall should can could may might must of to in on at by for from with without into onto
	upon about as than then and or but nor if so because while though although there here what which who whom
	whose when where why how all any both each few more most other some such no not only own same too very just
	also s t d m re ve ll don doesn didn isn aren wasn won`)

// requestWords are the phrasing around a request. They count less, but are not
// dropped: helping may be all that a tool does. Words that say what a tool
// does, such as show or make, are not among them.
var requestWords = set(`please kindly need want wish like help assist let give tell know look looking hello hi
	hey thank thanks try able possible possibly maybe someone something anything everything thing things way ways
	good best great nice now today via recommend suggest provide`)

func set(list string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(list) {
		m[w] = true
	}
	return m
}
