// Package redact removes known secrets from text, also where they are encoded:
// in base64 (standard and URL-safe, at every alignment), in hexadecimal digits,
// with percent signs, and with the escapes of JSON. Text that was encoded twice,
// compressed, or encrypted is not recognized.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// Mask is what stands in the place of a secret.
const Mask = "***"

// Shortest is the length of the shortest secret: to mask every "1" or "on" would
// garble everything and hide nothing.
const Shortest = 4

// A Set has the secrets that are known. The zero Set has none. It is safe for
// concurrent use.
type Set struct {
	mu    sync.Mutex
	known map[string]bool
	index atomic.Pointer[index]
}

// Add adds secrets. Those that are too short are ignored.
func (s *Set) Add(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.known)
	for _, secret := range secrets {
		if secret = strings.TrimSpace(secret); len(secret) >= Shortest {
			if s.known == nil {
				s.known = map[string]bool{}
			}
			s.known[secret] = true
		}
	}
	if len(s.known) > before {
		s.index.Store(newIndex(s.known))
	}
}

// Text returns the text with a Mask for each secret.
func (s *Set) Text(text string) string {
	x := s.index.Load()
	if x == nil || len(text) < Shortest {
		return text
	}
	if out := x.mask([]byte(text)); out != nil {
		return string(out)
	}
	return text
}

// JSON returns valid JSON with a Mask for each secret in its strings and numbers.
// The rest is unchanged.
func (s *Set) JSON(raw []byte) []byte {
	x := s.index.Load()
	if x == nil {
		return raw
	}
	var out bytes.Buffer
	done := 0 // what is in out
	replace := func(from, to int, by string) {
		out.Write(raw[done:from])
		quoted, _ := json.Marshal(by)
		out.Write(quoted)
		done = to
	}
	for i := 0; i < len(raw); {
		end := i + 1
		switch c := raw[i]; {
		case c == '"':
			escaped := false
			for ; end < len(raw) && raw[end] != '"'; end++ {
				if raw[end] == '\\' {
					escaped = true
					end++
				}
			}
			end = min(end+1, len(raw))
			text := raw[i+1 : max(i+1, end-1)]
			if escaped {
				var plain string
				if json.Unmarshal(raw[i:end], &plain) == nil {
					text = []byte(plain)
				}
			}
			if masked := x.mask(text); masked != nil {
				replace(i, end, string(masked))
			}
		case c == '-' || c >= '0' && c <= '9':
			for end < len(raw) && strings.IndexByte("+-.0123456789Ee", raw[end]) >= 0 {
				end++
			}
			if x.mask(raw[i:end]) != nil {
				replace(i, end, Mask)
			}
		}
		i = end
	}
	if done == 0 {
		return raw
	}
	out.Write(raw[done:])
	return out.Bytes()
}

// A pattern is a form of a secret. before and after are how many characters next
// to it have bits of the secret, too.
type pattern struct {
	text          string
	before, after int
	// shorter is the place among the index's patterns of the longest one that this
	// one begins with, or negative.
	shorter int
}

// An index finds patterns.
type index struct {
	begins   [1 << 10]uint64 // a bit for each hash of the first four bytes of some pattern
	patterns []pattern       // sorted
}

func beginning(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func bit(begin uint32) (word int, mask uint64) {
	h := begin * 0x9E3779B1 >> 16
	return int(h >> 6), 1 << (h & 63)
}

func newIndex(secrets map[string]bool) *index {
	x := &index{}
	add := func(p pattern) {
		x.patterns = append(x.patterns, p)
		word, mask := bit(beginning([]byte(p.text)))
		x.begins[word] |= mask
	}
	for secret := range maps.Keys(secrets) {
		add(pattern{text: secret})
		add(pattern{text: strings.ReplaceAll(secret, " ", "+")}) // in a query
		add(pattern{text: hex.EncodeToString([]byte(secret))})
		add(pattern{text: strings.ToUpper(hex.EncodeToString([]byte(secret)))})
		for shift := range 3 {
			// Characters that have bits of other bytes, too, are not part of the pattern.
			bits := 8 * (shift + len(secret))
			from, to := (8*shift+5)/6, bits/6
			p := pattern{before: min(1, 8*shift%6), after: min(1, bits%6)}
			for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				p.text = enc.EncodeToString([]byte(strings.Repeat("\x00", shift) + secret))[from:to]
				add(p)
			}
		}
	}
	slices.SortFunc(x.patterns, func(a, b pattern) int { return strings.Compare(a.text, b.text) })
	for i := range x.patterns {
		j := i - 1
		for j >= 0 && !strings.HasPrefix(x.patterns[i].text, x.patterns[j].text) {
			j = x.patterns[j].shorter
		}
		x.patterns[i].shorter = j
	}
	return x
}

// at returns the patterns that the text begins with, the longest first.
func (x *index) at(text []byte) iter.Seq[pattern] {
	return func(yield func(pattern) bool) {
		// The last pattern that is not after the text, or one that it begins with.
		i := sort.Search(len(x.patterns), func(i int) bool {
			p := x.patterns[i].text
			return p > string(text[:min(len(text), len(p))])
		}) - 1
		for ; i >= 0; i = x.patterns[i].shorter {
			if p := x.patterns[i]; len(p.text) <= len(text) && string(text[:len(p.text)]) == p.text && !yield(p) {
				return
			}
		}
	}
}

// mask returns the text with its secrets masked, or nil if it has none.
func (x *index) mask(text []byte) []byte {
	masked := x.maskIn(text, text, nil)
	for _, v := range []struct {
		sign   byte
		decode func(text []byte) (plain []byte, at []int)
	}{{'%', unpercent}, {'\\', unescape}} {
		now := text
		if masked != nil {
			now = masked
		}
		if bytes.IndexByte(now, v.sign) < 0 {
			continue
		}
		plain, at := v.decode(now)
		if again := x.maskIn(now, plain, at); again != nil {
			masked = again
		}
	}
	return masked
}

// maskIn masks in text what is found in plain, its decoded form; at says where
// each byte of plain begins in text, and nil that they are the same.
func (x *index) maskIn(text, plain []byte, at []int) []byte {
	var out []byte
	done, from, to := 0, -1, 0 // the bytes from and to of plain are to be masked
	flush := func() {
		if from < 0 {
			return
		}
		begin, end := from, to
		if at != nil {
			begin, end = at[from], at[to]
		}
		out = append(append(out, text[done:begin]...), Mask...)
		done, from = end, -1
	}
	for i := 0; i+Shortest <= len(plain); i++ {
		if word, mask := bit(beginning(plain[i:])); x.begins[word]&mask == 0 {
			continue
		}
		for p := range x.at(plain[i:]) {
			a, b := max(0, i-p.before), min(len(plain), i+len(p.text)+p.after)
			if from >= 0 && a > to {
				flush()
			}
			if from < 0 {
				from, to = a, b
			}
			from, to = min(from, a), max(to, b)
		}
	}
	flush()
	if out == nil {
		return nil
	}
	return append(out, text[done:]...)
}

// unpercent decodes percent signs.
func unpercent(text []byte) (plain []byte, at []int) {
	plain, at = make([]byte, 0, len(text)), make([]int, 0, len(text)+1)
	for i := 0; i < len(text); {
		c, n := text[i], 1
		if c == '%' && i+2 < len(text) {
			var b [1]byte
			if _, err := hex.Decode(b[:], text[i+1:i+3]); err == nil {
				c, n = b[0], 3
			}
		}
		plain, at = append(plain, c), append(at, i)
		i += n
	}
	return plain, append(at, len(text))
}

// unescape decodes the escapes of JSON, and \x41 of other languages.
func unescape(text []byte) (plain []byte, at []int) {
	plain, at = make([]byte, 0, len(text)), make([]int, 0, len(text)+1)
	for i := 0; i < len(text); {
		decoded, n := text[i:i+1], 1
		if text[i] == '\\' && i+1 < len(text) {
			decoded, n = text[i+1:i+2], 2
			switch c := text[i+1]; c {
			case 'n', 't', 'r', 'b', 'f':
				decoded = []byte{map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f'}[c]}
			case 'u', 'x':
				digits := map[byte]int{'u': 4, 'x': 2}[c]
				if r, ok := number(text[i+2:], digits); ok {
					decoded, n = utf8.AppendRune(nil, r), 2+digits
				}
			}
		}
		for _, c := range decoded {
			plain, at = append(plain, c), append(at, i)
		}
		i += n
	}
	return plain, append(at, len(text))
}

func number(text []byte, digits int) (r rune, ok bool) {
	if len(text) < digits {
		return 0, false
	}
	b := make([]byte, digits/2)
	if _, err := hex.Decode(b, text[:digits]); err != nil {
		return 0, false
	}
	for _, c := range b {
		r = r<<8 | rune(c)
	}
	return r, true
}
