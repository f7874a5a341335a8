package invisible

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHidden(t *testing.T) {
	tests := []struct{ name, text, found, stripped, escaped string }{
		{"plain", "Reads a file.\n\tAll of it.", "", "Reads a file.\n\tAll of it.", "Reads a file.\n\tAll of it."},
		{"other scripts", "Größe 大小 размер", "", "Größe 大小 размер", "Größe 大小 размер"},
		{"emoji", "⚠️ care, 👩‍💻 at work", "", "⚠️ care, 👩‍💻 at work", "⚠️ care, 👩‍💻 at work"},
		{"Persian", "می\u200cخواهم", "", "می\u200cخواهم", "می\u200cخواهم"},
		{"escape sequence", "a\x1b[31mb", "U+001B", "a[31mb", `a\u{1b}[31mb`},
		{"carriage return", "safe\rdanger", "", "safedanger", "safedanger"},
		{"zero width", "ig\u200bnore", "U+200B", "ignore", `ig\u{200b}nore`},
		{"joiner in Latin", "ig\u200dnore", "U+200D", "ignore", `ig\u{200d}nore`},
		{"override", "a\u202eb\u2066c", "U+202E, U+2066", "abc", `a\u{202e}b\u{2066}c`},
		{"tags", "x\U000e0068\U000e0069", "U+E0068, U+E0069", "x", `x\u{e0068}\u{e0069}`},
		{"bytes in selectors", "😀\ufe0f\ufe01\U000e0110", "U+FE01, U+E0110", "😀\ufe0f", "😀\ufe0f\\u{fe01}\\u{e0110}"},
		{"a row of selectors", "😀\ufe0f\ufe0f", "U+FE0F", "😀\ufe0f", "😀\ufe0f\\u{fe0f}"},
		{"no UTF-8", "a\xffb", "", "a\ufffdb", "a\ufffdb"},
	}
	for _, tt := range tests {
		if got := Names(In(tt.text)); got != tt.found {
			t.Errorf("%s: found %s, want %s", tt.name, got, tt.found)
		}
		if got := Strip(tt.text); got != tt.stripped {
			t.Errorf("%s: stripped %q, want %q", tt.name, got, tt.stripped)
		}
		if got := Escape(tt.text); got != tt.escaped {
			t.Errorf("%s: escaped %q, want %q", tt.name, got, tt.escaped)
		}
	}
	if got := Line(" a\n b\x07 \t c"); got != `a b\u{7} c` {
		t.Errorf("line %q", got)
	}
}

func FuzzStrip(f *testing.F) {
	for _, s := range []string{"", "a\u200bb", "\xff\x00", "😀\ufe0f\ufe0f", "x\U000e0068"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, clean := range []string{Strip(s), Escape(s), Line(s)} {
			if !utf8.ValidString(clean) && utf8.ValidString(s) {
				t.Errorf("%q became %q", s, clean)
			}
		}
		if again := Escape(s); len(In(again)) != 0 || strings.ContainsRune(again, 0x1b) {
			t.Errorf("%q: escaped, %q still hides %s", s, again, Names(In(again)))
		}
	})
}
