package guest

import (
	"io"
	"strings"
	"sync"
	"unicode"
)

// tailReader remembers the last bytes that passed, because a program that
// could not start writes its reason where frames were expected.
type tailReader struct {
	r io.Reader

	mu     sync.Mutex
	last   []byte
	faulty bool
}

const maxTail = 4 << 10

func (t *tailReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		b := p[:n]
		if len(b) > maxTail {
			b = b[len(b)-maxTail:]
		}
		t.mu.Lock()
		if over := len(t.last) + len(b) - maxTail; over > 0 {
			t.last = append(t.last[:0], t.last[over:]...)
		}
		t.last = append(t.last, b...)
		t.mu.Unlock()
	}
	return n, err
}

// fault says that the stream is not frames: only then is its tail text.
func (t *tailReader) fault() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faulty = true
}

// rest reads on, to the end of the stream or of what is kept.
func (t *tailReader) rest() { _, _ = io.CopyN(io.Discard, t, maxTail) }

func (t *tailReader) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.faulty {
		return ""
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, string(t.last)))
}
