package tool

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/invisible"
)

func TestFirstSentence(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", ""},
		{"\n\n  Reads a file.\nAnd more.", "Reads a file"},
		{"Reads a file. Then closes it.", "Reads a file"},
		{"Reads a file, e.g. a log. *Careful*.", "Reads a file, e.g. a log"},
		{"No. 5 is alive", "No. 5 is alive"},
		{"And so on...", "And so on..."},
		{"# Heading\ntext", "Heading"},
		{"a\tb   c", "a b c"},
		{"ig\u200bnore \x1b[31mred", "ignore [31mred"},
		{strings.Repeat("word ", 30), strings.TrimRight(strings.Repeat("word ", 16), " ") + "…"},
		{strings.Repeat("x", 200), strings.Repeat("x", 80) + "…"},
		{strings.Repeat("ü", 5000), strings.Repeat("ü", 80) + "…"},
	}
	for _, tt := range tests {
		if got := FirstSentence(tt.text); got != tt.want {
			t.Errorf("%.40q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

func FuzzFirstSentence(f *testing.F) {
	for _, s := range []string{"", "A b. C", "\xff. A", "\u202eabc", strings.Repeat("é", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line := FirstSentence(s)
		if strings.ContainsAny(line, "\n\r\t") || len(invisible.In(line)) > 0 || utf8.RuneCountInString(line) > 81 {
			t.Errorf("%q became %q", s, line)
		}
	})
}
