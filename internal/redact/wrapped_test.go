package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

var encodings = []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding}

// wrapped has text in lines of so many characters.
func wrapped(text string, width int, by string) string {
	var b strings.Builder
	for len(text) > width {
		b.WriteString(text[:width] + by)
		text = text[width:]
	}
	return b.String() + text
}

// core returns the characters of a secret's base64 that have bits of nothing else,
// where so many bytes stand before it.
func core(secret string, before int, enc *base64.Encoding) string {
	text := enc.WithPadding(base64.NoPadding).EncodeToString([]byte(strings.Repeat("\x00", before) + secret))
	return text[(8*before+5)/6 : 8*(before+len(secret))/6]
}

// TestWrapped: wherever lines are broken, nothing of a secret is left of its base64
// and its hexadecimal digits.
func TestWrapped(t *testing.T) {
	joined := func(text string) string { return strings.Join(strings.Fields(text), "") }
	for name, by := range map[string]string{"LF": "\n", "CRLF": "\r\n", "CR": "\r", "indented": "\n    ", "tabs and a space at the end": " \r\n\t\t", "blank lines": "\n\n \n"} {
		for _, secret := range []string{"abcd", "abcde", secret, strings.Repeat("\xff\xfe?>", 20)} {
			s := set("other-secret", secret)
			for width := range 13 {
				width++
				for before := range 4 {
					plain := []byte(strings.Repeat("(", before) + secret + ")))")
					for _, enc := range encodings {
						text := "key: " + wrapped(enc.EncodeToString(plain), width, by) + "\n"
						got := s.Text(text)
						left, right, ok := strings.Cut(got, Mask)
						if whole := joined(text[len("key: "):]); !ok || len(joined(left[len("key: "):])) > before*8/6 || !strings.HasPrefix(whole, joined(left[len("key: "):])) || !strings.HasSuffix(whole, joined(right)) || len(joined(right)) > 5+2 {
							t.Fatalf("%s: %q after %d bytes in %q: got %q", name, secret, before, text, got)
						}
					}
					for _, digits := range []string{hex.EncodeToString(plain), strings.ToUpper(hex.EncodeToString(plain))} {
						want := digits[:2*before] + Mask + "292929"
						if got := s.Text(wrapped(digits, width, by)); joined(got) != want {
							t.Fatalf("%s: %q in %q: got %q, want %q", name, secret, wrapped(digits, width, by), got, want)
						}
					}
				}
			}
		}
	}
}

// TestWrappedForms: line breaks may be escaped, and the text around them stays.
func TestWrappedForms(t *testing.T) {
	const token, secret = "ghp_0123456789abcdefGHIJ", secret + "!!" // of which base64 makes whole characters
	s := set(secret, "hunter2", token)
	code := wrapped(base64.StdEncoding.EncodeToString([]byte("..."+secret+"...")), 10, "\n")
	masked := "Li4u" + Mask + "Li4u"
	crlf := strings.ReplaceAll(code, "\n", "\r\n")
	for _, test := range []struct{ name, text, want string }{
		{"plain", "a:\n" + code + "\n\nb\n", "a:\n" + masked + "\n\nb\n"},
		{"escaped LF", `{"a":"` + quoted(code) + `"}`, `{"a":"` + masked + `"}`},
		{"escaped CRLF", `{"a":"` + quoted(crlf) + `"}`, `{"a":"` + masked + `"}`},
		{"as a code point", strings.ReplaceAll(code, "\n", `\u000a`), masked},
		{"of Python", "b'" + strings.ReplaceAll(code, "\n", `\x0a`) + "'", "b'" + masked + "'"},
		{"of a shell", "echo " + strings.ReplaceAll(code, "\n", "\\\n") + " | base64 -d", "echo " + masked + " | base64 -d"},
		{"percent signs", "?x=" + url.QueryEscape(code) + "&y=1", "?x=" + masked + "&y=1"},
		{"percent signs, CRLF", "?x=" + strings.ToLower(url.QueryEscape("\r\n")) + url.PathEscape(crlf), "?x=%0d%0a" + masked},
		{"a form", "x=" + url.QueryEscape(strings.ReplaceAll(code, "\n", "\r\n   ")), "x=" + masked},
		{"hexadecimal", "  " + wrapped(hex.EncodeToString([]byte(secret)), 7, "\n  ") + "\n", "  " + Mask + "\n"},
		{"a token", wrapped(token, 9, "\n"), Mask},
		{"two secrets, one wrapped", "hunter2 " + code, Mask + " " + masked},
		{"words at the ends of lines", "hun\nter2 abcdefghijklmnop\nqrst", "hun\nter2 abcdefghijklmnop\nqrst"},
		{"a space is no line break", strings.ReplaceAll(code, "\n", " "), strings.ReplaceAll(code, "\n", " ")},
	} {
		if got := s.Text(test.text); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
	for _, text := range []string{code, crlf, strings.ReplaceAll(code, "\n", "\n  ")} {
		raw, want := fmt.Appendf(nil, `{"a": ["%s"]}`, quoted(text)), []byte(`{"a": ["`+masked+`"]}`)
		if got := s.JSON(raw); !bytes.Equal(got, want) {
			t.Errorf("%q in JSON: got %s, want %s", text, got, want)
		}
	}
}

// FuzzWrapped: whatever stands around a secret and wherever lines are broken, its
// base64 is not left, as text and in JSON.
func FuzzWrapped(f *testing.F) {
	f.Add(secret, "", "", 76, 0, uint8(0))
	f.Add(secret, "(", "tail", 4, 1, uint8(1))
	f.Add("abcd", "ab", "c", 1, 2, uint8(2))
	f.Add(strings.Repeat("\xff\xfe?>", 20), "abc", "", 64, 3, uint8(3))
	f.Add("hunter2", "%41\n", "\\n", 3, 4, uint8(1))
	f.Fuzz(func(t *testing.T, secret, before, after string, width, by int, how uint8) {
		secret = strings.TrimSpace(secret)
		breaks := []string{"\n", "\r\n", "\n\t", "  \n  ", "\r"}
		if len(secret) < Shortest || len(secret) > 1<<10 || len(before)+len(after) > 1<<10 || width < 1 || by < 0 || by >= len(breaks) {
			t.Skip()
		}
		s, enc := set(secret), encodings[how%4]
		text := wrapped(enc.EncodeToString([]byte(before+secret+after)), width, breaks[by])
		raw, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{s.Text(text), s.Text(string(raw)), string(s.JSON(raw)), s.Text(url.QueryEscape(text))} {
			plain, err := url.QueryUnescape(got)
			if err != nil {
				plain = got
			}
			plain = strings.Join(strings.Fields(strings.NewReplacer(`\n`, "", `\r`, "", `\t`, "").Replace(plain)), "")
			if strings.Contains(plain, core(secret, len(before)%3, enc)) {
				t.Fatalf("%q is left of %q in %q", core(secret, len(before)%3, enc), secret, got)
			}
		}
	})
}
