package session

import (
	"sync"
	"unicode/utf8"

	"sallyport/internal/budget"
)

// Stream is one of the two that a program writes to.
type Stream int

// The streams.
const (
	Stdout Stream = iota
	Stderr
	streams
)

func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Captured is what was kept of one stream.
type Captured struct {
	Head    string // the beginning, or all of it when Omitted is 0
	Tail    string // the end, when something in between was left out
	Omitted int64  // bytes left out between Head and Tail
}

// output keeps the head and the tail of what an execution writes, both streams
// together within a budget, and passes everything on to a sink as it comes.
// Half of the budget is the head's; the tail is whatever came last on either
// stream. What it keeps is charged to memory, and is less where there is no
// room. It is safe for concurrent use.
type output struct {
	pump *pump // nil: nobody looks

	memory  *budget.Budget
	charged int64

	mu       sync.Mutex
	closed   bool
	headRoom int64
	tailRoom int64
	head     [streams][]byte
	tail     []chunk
	tailSize int64
	extra    int64 // what the bytes so far take beyond their number; see weigh
	omitted  [streams]int64
}

type chunk struct {
	stream Stream
	data   []byte
}

// maxChunk bounds what one chunk of the tail grows to by merging, and so the
// memory that is held beyond the budget.
const maxChunk = 32 << 10

// chargeStep is how much is charged at a time, and copied is how often what is
// kept is in a result: as a text and as lines.
const (
	chargeStep = 256 << 10
	copied     = 2
)

func newOutput(limit int64, memory *budget.Budget, sink func(Stream, []byte)) *output {
	o := &output{headRoom: limit - limit/2, tailRoom: limit / 2, memory: memory}
	if sink != nil {
		o.pump = newPump(sink)
	}
	return o
}

// write takes p, which the caller may reuse. After close it does nothing.
func (o *output) write(s Stream, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(p) == 0 {
		return
	}
	if o.pump != nil {
		o.pump.push(s, p)
	}
	o.charge(p)
	if n := min(o.headRoom, int64(len(p))); n > 0 {
		o.head[s] = append(o.head[s], p[:n]...)
		o.headRoom -= n
		p = p[n:]
	}
	if drop := int64(len(p)) - o.tailRoom; drop > 0 {
		// What is already in the tail goes too: it came before.
		for _, c := range o.tail {
			o.omitted[c.stream] += int64(len(c.data))
		}
		o.tail, o.tailSize = nil, 0
		o.omitted[s] += drop
		p = p[drop:]
	}
	if len(p) == 0 {
		return
	}
	o.tailSize += int64(len(p))
	if n := len(o.tail); n > 0 && o.tail[n-1].stream == s && len(o.tail[n-1].data)+len(p) <= maxChunk {
		o.tail[n-1].data = append(o.tail[n-1].data, p...)
	} else {
		o.tail = append(o.tail, chunk{s, append([]byte(nil), p...)})
	}
	for o.tailSize > o.tailRoom {
		first := &o.tail[0]
		n := min(o.tailSize-o.tailRoom, int64(len(first.data)))
		o.omitted[first.stream] += n
		o.tailSize -= n
		first.data = first.data[n:]
		if len(first.data) == 0 {
			o.tail = o.tail[1:]
		}
	}
}

// charge charges what p may take. Where that fails, what is kept grows no more.
// The lock is held.
func (o *output) charge(p []byte) {
	room := o.headRoom + o.tailRoom - o.tailSize
	if room <= 0 {
		return // it grows no more
	}
	kept := o.tailSize
	for s := range streams {
		kept += int64(len(o.head[s]))
	}
	o.extra += weigh(p)
	need := (kept + min(int64(len(p)), room) + o.extra) * copied
	if need <= o.charged {
		return
	}
	step := max(chargeStep, need-o.charged)
	if !o.memory.TryAcquire(step) {
		o.headRoom, o.tailRoom = 0, o.tailSize
		return
	}
	o.charged += step
}

// weigh returns what p takes in a result beyond its bytes: a line is a string of
// its own, and JSON escapes control characters.
func weigh(p []byte) (extra int64) {
	for _, b := range p {
		switch {
		case b == '\n':
			extra += 12
		case b < ' ':
			extra += 5
		case b >= utf8.RuneSelf: // what is not UTF-8 becomes U+FFFD
			extra += 2
		case b == '"' || b == '\\':
			extra++
		}
	}
	return extra
}

// abandon says that the sink is not to be waited for any more.
func (o *output) abandon() {
	if o.pump != nil {
		o.pump.abandon()
	}
}

// close ends the execution's output, waits until the sink has it all, and
// returns what was kept.
func (o *output) close() [streams]Captured {
	if o.pump != nil {
		o.pump.close()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	defer func() {
		o.memory.Release(o.charged)
		o.charged = 0
	}()
	var tails [streams][]byte
	for _, c := range o.tail {
		tails[c.stream] = append(tails[c.stream], c.data...)
	}
	var kept [streams]Captured
	for s := range streams {
		if o.omitted[s] == 0 {
			kept[s] = Captured{Head: text(append(o.head[s], tails[s]...))}
			continue
		}
		head, tail := trimEnd(o.head[s]), trimStart(tails[s])
		lost := len(o.head[s]) - len(head) + len(tails[s]) - len(tail)
		kept[s] = Captured{Head: text(head), Tail: text(tail), Omitted: o.omitted[s] + int64(lost)}
	}
	o.head, o.tail = [streams][]byte{}, nil
	return kept
}

// text decodes UTF-8; what is not becomes U+FFFD, byte by byte.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return string(out)
}

// trimEnd takes off a code point that the cut has torn apart.
func trimEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// trimStart takes off the rest of a code point that the cut has torn apart.
func trimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// stray keeps the end of what a sandbox writes between executions.
type stray struct {
	mu      sync.Mutex
	data    []byte
	omitted int64
}

// maxStray is how much of it is kept for the next result's note.
const maxStray = 2 << 10

func (s *stray) write(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if drop := len(p) - maxStray; drop > 0 {
		s.omitted += int64(drop)
		p = p[drop:]
	}
	s.data = append(s.data, p...)
	if drop := len(s.data) - maxStray; drop > 0 {
		s.omitted += int64(drop)
		s.data = append(s.data[:0], s.data[drop:]...)
	}
}

// take returns what was kept since the last take, and how much was not.
func (s *stray) take() (string, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.data) == 0 {
		return "", 0
	}
	kept, omitted := s.data, s.omitted
	if omitted > 0 {
		kept = trimStart(kept)
	}
	out := text(kept)
	s.data, s.omitted = s.data[:0], 0
	return out, omitted
}
