package redact

import "bytes"

// whole is the length from which on a secret that consists of the characters of
// base64 is taken for one that may be wrapped itself, as keys are. A shorter one
// could be put together from words at the ends of lines.
const whole = 16

// encoded reports whether a secret may be wrapped as it is.
func encoded(secret string) bool {
	for i := range len(secret) {
		if !isCode(secret[i]) {
			return false
		}
	}
	return len(secret) >= whole
}

// isCode reports whether base64, of both alphabets, or hexadecimal digits have the
// character.
func isCode(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

func isBreak(c byte) bool { return c == '\n' || c == '\r' }

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// unwrap adds to found where plain has patterns once line breaks are taken out that
// stand between two characters of an encoding, with the white space around them.
// It looks at each piece that such breaks hold together. Where there are none, this
// costs a search for line breaks.
func (x *index) unwrap(found []span, plain []byte) []span {
	next := breaks{plain, -1, -1}
	if next.after(0) == len(plain) {
		return found
	}
	var chain []byte
	var parts []part
	for done := 0; ; {
		i := next.after(done)
		if i == len(plain) {
			return found
		}
		to := i
		for to > done && isSpace(plain[to-1]) {
			to--
		}
		from := to
		for from > done && isCode(plain[from-1]) {
			from--
		}
		chain, parts = chain[:0], parts[:0]
		for from < to {
			parts = append(parts, part{len(chain), from})
			chain = append(chain, plain[from:to]...)
			broken := false
			for from = to; from < len(plain) && isSpace(plain[from]); from++ {
				broken = broken || isBreak(plain[from])
			}
			to = from
			for broken && to < len(plain) && isCode(plain[to]) {
				to++
			}
		}
		done = max(from, i+1)
		if len(parts) < 2 {
			continue
		}
		old, n := len(found), 0
		place := func(i int) int {
			for n+1 < len(parts) && parts[n+1].chain <= i {
				n++
			}
			return parts[n].text + i - parts[n].chain
		}
		found = x.match(found, chain, true)
		for j := old; j < len(found); j++ {
			found[j] = span{place(found[j].from), place(found[j].to-1) + 1} // not the break after it
		}
	}
}

// A part of a chain begins at one place of the chain and at another of the text.
type part struct{ chain, text int }

// breaks finds line breaks.
type breaks struct {
	text []byte
	lf   int // the next one, if it is not before where the search begins
	cr   int
}

// after returns where the next line break is, from i on, or the length of the text.
func (b *breaks) after(i int) int {
	b.lf, b.cr = b.find(b.lf, i, '\n'), b.find(b.cr, i, '\r')
	return min(b.lf, b.cr)
}

func (b *breaks) find(known, i int, c byte) int {
	if known >= i {
		return known
	}
	if n := bytes.IndexByte(b.text[i:], c); n >= 0 {
		return i + n
	}
	return len(b.text)
}
