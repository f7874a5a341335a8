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

const secret = `s3cr=t/"pä ss\word`

// forms are how a secret may be written.
var forms = map[string]string{
	"as it is":       secret,
	"query":          url.QueryEscape(secret),
	"path":           url.PathEscape(secret),
	"small percents": strings.ToLower(url.QueryEscape(secret)),
	"all percents": func() (s string) {
		for _, c := range []byte(secret) {
			s += fmt.Sprintf("%%%02x", c)
		}
		return s
	}(),
	"hexadecimal": hex.EncodeToString([]byte(secret)),
	"HEXADECIMAL": strings.ToUpper(hex.EncodeToString([]byte(secret))),
	"JSON":        quoted(secret),
	"ASCII JSON":  `s3cr=t\/\"p\u00e4 ss\\word`,
	"all escapes": func() (s string) {
		for _, r := range secret {
			s += fmt.Sprintf(`\u%04X`, r)
		}
		return s
	}(),
}

func quoted(s string) string {
	raw, _ := json.Marshal(s)
	return string(raw[1 : len(raw)-1])
}

func set(secrets ...string) *Set {
	s := &Set{}
	s.Add(secrets...)
	return s
}

func TestForms(t *testing.T) {
	s := set("other-secret", secret, "on")
	for name, form := range forms {
		for _, around := range []string{"", "x", "50% of C:\\new "} {
			text := around + form + around
			if got, want := s.Text(text), around+Mask+around; got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
			inJSON := func(text string) []byte {
				return fmt.Appendf(nil, `{"a": ["%s"], "%[1]s":1}`, quoted(text))
			}
			raw, want := inJSON(text), inJSON(around+Mask+around)
			if got := s.JSON(raw); !bytes.Equal(got, want) {
				t.Errorf("%s in JSON: got %s, want %s", name, got, want)
			}
		}
	}
}

// Whatever stands around it, nothing of a secret is left of base64.
func TestBase64(t *testing.T) {
	for _, secret := range []string{"abcd", "abcde", "abcdef", secret, strings.Repeat("\xff\xfe?>", 20)} {
		s := set(secret)
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			for before := range 7 {
				for after := range 7 {
					plain := strings.Repeat("(", before) + secret + strings.Repeat(")", after)
					got := s.Text(enc.EncodeToString([]byte(plain)))
					left, right, ok := strings.Cut(got, Mask)
					whole := enc.EncodeToString([]byte(plain))
					if !ok || len(left) > before*8/6 || len(strings.TrimRight(right, "=")) > (after*8+5)/6 || !strings.HasPrefix(whole, left) || !strings.HasSuffix(whole, right) {
						t.Fatalf("%q in %s: got %s", plain, whole, got)
					}
				}
			}
		}
	}
}

func TestSeveral(t *testing.T) {
	s := set("abcdef", "defghi", "12345678")
	for text, want := range map[string]string{
		"abcdefghi":            "***", // they overlap
		"abcdefabcdef":         "***",
		"abcdef abcdef":        "*** ***",
		"abcde":                "abcde",
		"":                     "",
		"%61bcdef\\u0061bcdef": "***",
	} {
		if got := s.Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	in := `{"n":[12345678, 0.5e-3,-12345678.5,912345678], "é\n":"keep\u0041"}`
	want := `{"n":["***", 0.5e-3,"***","***"], "é\n":"keep\u0041"}`
	if got := string(s.JSON([]byte(in))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzJSON: what was JSON stays JSON, and the secret is not in any of its strings.
func FuzzJSON(f *testing.F) {
	for _, form := range forms {
		f.Add([]byte(`{"a":"`+quoted(form)+`"}`), secret)
	}
	f.Add([]byte(`[12345,"\"\\"]`), "1234")
	f.Add([]byte(`"\ud83d\ude00n123"`), "n123")
	f.Fuzz(func(t *testing.T, raw []byte, secret string) {
		if !json.Valid(raw) || strings.Contains(Mask, secret) || strings.Contains(secret, "*") || len(secret) > 1<<10 {
			t.Skip()
		}
		got := set(secret).JSON(raw)
		if !json.Valid(got) {
			t.Fatalf("%q without %q is no JSON: %q", raw, secret, got)
		}
		if secret = strings.TrimSpace(secret); len(secret) < Shortest {
			return
		}
		dec := json.NewDecoder(bytes.NewReader(got))
		dec.UseNumber()
		for {
			token, err := dec.Token()
			if err != nil {
				break
			}
			if text, ok := token.(string); ok && strings.Contains(text, secret) {
				t.Fatalf("%q is still in %q", secret, got)
			}
		}
	})
}

func BenchmarkText(b *testing.B) {
	var secrets []string
	for i := range 200 {
		secrets = append(secrets, fmt.Sprintf("secret-%d-of-many-%x", i, i*7919))
	}
	s := set(secrets...)
	for name, text := range map[string]string{
		"plain":    strings.Repeat("The quick brown fox jumps over the lazy dog. ", 10<<20/45),
		"base64":   base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("\x00\x10\x83\x10\x51\x87\x20\x92\x8b"), 10<<20/12)),
		"percent":  strings.Repeat("%41", 10<<20/3),
		"hostile":  strings.Repeat("secret-1", 10<<20/8),
		"escapes":  strings.Repeat(`\u0041`, 10<<20/6),
		"lines":    strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 10<<20/45),
		"wrapped":  strings.Repeat(strings.Repeat("AEGDEFGHIJ", 7)+"AEGDEF\n", 10<<20/77),
		"ordinary": "a short argument of a call",
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				_ = s.Text(text)
			}
		})
	}
}
