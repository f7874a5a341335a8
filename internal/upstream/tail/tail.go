// Package tail keeps the end of a stream: enough to say why a program failed,
// never more than was agreed.
package tail

import "sync"

// Buffer is an io.Writer that keeps the last bytes written to it. It is safe for
// concurrent use, and the zero value keeps nothing; use New.
type Buffer struct {
	mu    sync.Mutex
	max   int
	buf   []byte
	next  int // where the oldest byte is once buf is full
	total int64
}

// New returns a Buffer that keeps max bytes. Memory is taken as it is used.
func New(max int) *Buffer { return &Buffer{max: max} }

// Write never fails.
func (t *Buffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.total += int64(n)
	if len(p) >= t.max {
		t.buf = append(t.buf[:0], p[len(p)-t.max:]...)
		t.next = 0
		return n, nil
	}
	if room := t.max - len(t.buf); room > 0 {
		k := min(room, len(p))
		t.buf = append(t.buf, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 {
		k := copy(t.buf[t.next:], p)
		p = p[k:]
		if t.next += k; t.next == len(t.buf) {
			t.next = 0
		}
	}
	return n, nil
}

// Bytes returns a copy of what is kept, oldest first.
func (t *Buffer) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]byte, 0, len(t.buf))
	out = append(out, t.buf[t.next:]...)
	return append(out, t.buf[:t.next]...)
}

// Total is how many bytes have ever been written.
func (t *Buffer) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
