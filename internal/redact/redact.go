// Package redact removes known secrets from text, also where they are encoded:
// in base64 (standard and URL-safe, at every alignment), in hexadecimal digits,
// with percent signs, and with the escapes of JSON. Base64 and hexadecimal digits may
// be wrapped: line breaks in them, and the white space around these, are ignored,
// also where they are escaped themselves. Text that was encoded twice, compressed, or
// encrypted is not recognized.
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
	wraps         bool // line breaks in it say nothing
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
		add(pattern{text: secret, wraps: encoded(secret)})
		add(pattern{text: strings.ReplaceAll(secret, " ", "+")}) // in a query
		add(pattern{text: hex.EncodeToString([]byte(secret)), wraps: true})
		add(pattern{text: strings.ToUpper(hex.EncodeToString([]byte(secret))), wraps: true})
		for shift := range 3 {
			// Characters that have bits of other bytes, too, are not part of the pattern.
			bits := 8 * (shift + len(secret))
			from, to := (8*shift+5)/6, bits/6
			p := pattern{before: min(1, 8*shift%6), after: min(1, bits%6), wraps: true}
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
	found := x.find(nil, text, nil)
	passes := min(1, len(found)) // that have found something
	decoded := func(plain []byte, at []int) {
		before := len(found)
		if found = x.find(found, plain, at); len(found) > before {
			passes++
		}
	}
	if bytes.IndexByte(text, '%') >= 0 {
		decoded(unpercent(text))
		if bytes.IndexByte(text, '+') >= 0 && bytes.Contains(text, []byte("%0")) { // a line break, and spaces
			decoded(unquery(text))
		}
	}
	if bytes.IndexByte(text, '\\') >= 0 {
		decoded(unescape(text))
	}
	if len(found) == 0 {
		return nil
	}
	if passes > 1 {
		slices.SortFunc(found, func(a, b span) int { return a.from - b.from })
	}
	out := make([]byte, 0, len(text))
	for i, done := 0, 0; i < len(found); {
		s := found[i]
		for i++; i < len(found) && found[i].from <= s.to; i++ {
			s.to = max(s.to, found[i].to)
		}
		out = append(append(out, text[done:s.from]...), Mask...)
		done = s.to
		if i == len(found) {
			out = append(out, text[done:]...)
		}
	}
	return out
}

// A span is what is to be masked.
type span struct{ from, to int }

// find adds to found what is to be masked because of plain, the decoded form of a
// text; at says where each byte of plain begins in the text, and nil that they are
// the same.
func (x *index) find(found []span, plain []byte, at []int) []span {
	old := len(found)
	found = x.match(found, plain, false)
	direct := len(found)
	found = x.unwrap(found, plain)
	if direct > old && len(found) > direct {
		slices.SortFunc(found[old:], func(a, b span) int { return a.from - b.from })
	}
	if at != nil {
		for i := old; i < len(found); i++ {
			found[i] = span{at[found[i].from], at[found[i].to]}
		}
	}
	return found
}

// match adds to found where plain has patterns, in their order: all, or those that
// line breaks may be taken out of.
func (x *index) match(found []span, plain []byte, wrapped bool) []span {
	from, to := -1, 0 // is to be masked
	for i := 0; i+Shortest <= len(plain); i++ {
		if word, mask := bit(beginning(plain[i:])); x.begins[word]&mask == 0 {
			continue
		}
		for p := range x.at(plain[i:]) {
			if wrapped && !p.wraps {
				continue
			}
			a, b := max(0, i-p.before), min(len(plain), i+len(p.text)+p.after)
			if from >= 0 && a > to {
				found, from = append(found, span{from, to}), -1
			}
			if from < 0 {
				from, to = a, b
			}
			from, to = min(from, a), max(to, b)
		}
	}
	if from >= 0 {
		found = append(found, span{from, to})
	}
	return found
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

// unquery decodes a query: percent signs, and plus signs, which are spaces.
func unquery(text []byte) (plain []byte, at []int) {
	plain, at = unpercent(text)
	for i := range plain {
		if text[at[i]] == '+' {
			plain[i] = ' '
		}
	}
	return plain, at
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
