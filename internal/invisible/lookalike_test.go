package invisible

import "testing"

// TestMark: what looks like something else is shown as what it is, and text in any
// language stays readable.
func TestMark(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain text, 1 + 2 = 3", "plain text, 1 + 2 = 3"},
		{"p\u0430th", `p\u{430}th`},
		{"\u0440\u0430\u0443", `\u{440}\u{430}\u{443}`}, // all of it could be Latin
		{"адрес имя файл с пробелами", "адрес имя файл с пробелами"},
		{"größe, naïve, œuvre, łódź", "größe, naïve, œuvre, łódź"},
		{"Pythonで書いた 日本語 한국어 עברית", "Pythonで書いた 日本語 한국어 עברית"},
		{"Ελλάδα και", "Ελλάδα και"},
		{"\uff41dmin \U0001d41bold", `\u{ff41}dmin \u{1d41b}old`},
		{"/tmp\u2044x http:\u2215\u2215a", `/tmp\u{2044}x http:\u{2215}\u{2215}a`},
		{"a\u00a0b", `a\u{a0}b`},
		{"rm \u2013rf, well \u2013 yes", `rm \u{2013}rf, well – yes`},
		{"\u202etxt.exe\u200b", `\u{202e}txt.exe\u{200b}`},
		{"wide\uff0fslash\uff1a", `wide\u{ff0f}slash\u{ff1a}`},
		{"10\u00b2", `10\u{b2}`},
		{"…, 5 €, 👍🏽, “quoted”, don’t", "…, 5 €, 👍🏽, “quoted”, don’t"},
	} {
		if got := Mark(tt.in); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.in, got, tt.want)
		}
	}
}
