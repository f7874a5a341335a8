package tool

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/invisible"
)

// FirstSentence returns the first sentence of s on one line, without
// invisible characters, and cut where it is long.
func FirstSentence(text string) string {
	const most = 80
	const read = 4 << 10
	if len(text) > read {
		text = strings.ToValidUTF8(text[:read], "")
	}
	line := ""
	for part := range strings.Lines(text) {
		part = strings.TrimLeft(strings.Join(strings.Fields(invisible.Strip(part)), " "), "#*- ")
		if part != "" {
			line = part
			break
		}
	}
	if end := sentence(line); end > 0 {
		line = line[:end]
	} else if !strings.HasSuffix(line, "..") {
		line = strings.TrimSuffix(line, ".")
	}
	if utf8.RuneCountInString(line) <= most {
		return line
	}
	cut := string([]rune(line)[:most])
	if at := strings.LastIndexByte(cut, ' '); at > most/2 {
		cut = cut[:at]
	}
	return strings.TrimRight(cut, " ,;:") + "…"
}

// sentence returns where the first sentence ends, or 0. A period ends one before
// a capital letter only, so that "e.g. this" goes on.
func sentence(line string) int {
	for i := 0; i+2 < len(line); i++ {
		if line[i] != '.' || line[i+1] != ' ' || i < 8 {
			continue
		}
		next, _ := utf8.DecodeRuneInString(line[i+2:])
		if unicode.IsUpper(next) || next == '*' || next == '[' {
			return i
		}
	}
	return 0
}
