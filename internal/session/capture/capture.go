// Package capture keeps the output of an execution: the beginning and the end
// within a limit, and a live copy for a caller that follows the execution.
package capture

import (
	"bytes"
	"sync"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/wire"
)

// Output is the captured part of one stream.
type Output struct {
	Head    string // the beginning, or everything when Omitted is 0
	Tail    string // the end, when bytes in between were dropped
	Omitted int64  // bytes dropped between Head and Tail
	Lost    Lost   // what these bytes were
}

// Lost counts what dropped bytes were as text.
type Lost struct {
	Lines      int64 // how many more the whole has than Head and Tail
	Characters int64
}

func (l *Lost) add(b []byte) {
	l.Lines += int64(bytes.Count(b, []byte{'\n'}))
	for _, c := range b {
		if utf8.RuneStart(c) {
			l.Characters++
		}
	}
}

// Recorder keeps the head and the tail of what an execution writes, with one
// limit for both streams together, and passes everything on to a sink as it
// arrives. Half of the limit is for the heads; the tail is whatever came last on
// either stream. What it keeps is charged to a memory budget, and it keeps less
// when the budget is used up. It is safe for concurrent use.
type Recorder struct {
	live *live // nil: no sink

	memory  *budget.Budget
	charged int64

	mu       sync.Mutex
	closed   bool
	limit    int64
	headRoom int64
	tailRoom int64
	head     [wire.Streams][]byte
	tail     []chunk
	tailSize int64
	extra    int64 // what the bytes so far take beyond their number; see overhead
	omitted  [wire.Streams]int64
	lost     [wire.Streams]Lost
}

type chunk struct {
	stream wire.Stream
	data   []byte
}

// maxChunk bounds the size to which consecutive writes are merged, and so the
// memory held beyond the limit.
const maxChunk = 32 << 10

const (
	// chargeStep is how much memory is charged at a time.
	chargeStep = 256 << 10
	// copies is how often a result holds what is kept: as one string and as lines.
	copies = 2
)

// New returns a recorder that keeps at most limit bytes. sink, which may be nil,
// gets every write, on another goroutine; it must not keep the slice.
func New(limit int64, memory *budget.Budget, sink func(wire.Stream, []byte)) *Recorder {
	r := &Recorder{limit: limit, headRoom: limit - limit/2, tailRoom: limit / 2, memory: memory}
	if sink != nil {
		r.live = newLive(sink)
	}
	return r
}

// Write records p, which the caller may reuse. It does nothing after Close.
func (r *Recorder) Write(s wire.Stream, p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(p) == 0 {
		return
	}
	if r.live != nil {
		r.live.push(s, p)
	}
	r.charge(p)
	if n := min(r.headRoom, int64(len(p))); n > 0 {
		r.head[s] = append(r.head[s], p[:n]...)
		r.headRoom -= n
		p = p[n:]
	}
	if drop := int64(len(p)) - r.tailRoom; drop > 0 {
		// The whole tail is older than what is dropped of p, so it goes too.
		for _, c := range r.tail {
			r.drop(c.stream, c.data)
		}
		r.tail, r.tailSize = nil, 0
		r.drop(s, p[:drop])
		p = p[drop:]
	}
	if len(p) == 0 {
		return
	}
	r.tailSize += int64(len(p))
	if n := len(r.tail); n > 0 && r.tail[n-1].stream == s && len(r.tail[n-1].data)+len(p) <= maxChunk {
		r.tail[n-1].data = append(r.tail[n-1].data, p...)
	} else {
		r.tail = append(r.tail, chunk{s, append([]byte(nil), p...)})
	}
	for r.tailSize > r.tailRoom {
		first := &r.tail[0]
		n := min(r.tailSize-r.tailRoom, int64(len(first.data)))
		r.drop(first.stream, first.data[:n])
		r.tailSize -= n
		first.data = first.data[n:]
		if len(first.data) == 0 {
			r.tail = r.tail[1:]
		}
	}
}

// drop counts bytes that are not kept. The lock is held.
func (r *Recorder) drop(s wire.Stream, b []byte) {
	r.omitted[s] += int64(len(b))
	r.lost[s].add(b)
}

// charge charges the memory that p may take. If that fails, the recorder keeps
// what it has and grows no more. The lock is held.
func (r *Recorder) charge(p []byte) {
	room := r.headRoom + r.tailRoom - r.tailSize
	if room <= 0 {
		return // full: nothing grows
	}
	kept := r.tailSize
	for s := range wire.Streams {
		kept += int64(len(r.head[s]))
	}
	r.extra += overhead(p)
	need := (kept + min(int64(len(p)), room) + r.extra) * copies
	if need <= r.charged {
		return
	}
	step := max(chargeStep, need-r.charged)
	if !r.memory.TryAcquire(step) {
		r.headRoom, r.tailRoom = 0, r.tailSize
		return
	}
	r.charged += step
}

// overhead returns what p takes in a result beyond its bytes: every line is a
// string of its own, and JSON escapes control characters.
func overhead(p []byte) (extra int64) {
	for _, b := range p {
		switch {
		case b == '\n':
			extra += 12
		case b < ' ':
			extra += 5
		case b >= utf8.RuneSelf: // invalid UTF-8 becomes U+FFFD
			extra += 2
		case b == '"' || b == '\\':
			extra++
		}
	}
	return extra
}

// Abandon makes Write and Close stop waiting for the sink.
func (r *Recorder) Abandon() {
	if r.live != nil {
		r.live.abandon()
	}
}

// Close ends the recording, waits until the sink has everything, and returns
// what was kept of the two streams.
func (r *Recorder) Close() (stdout, stderr Output) {
	if r.live != nil {
		r.live.close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.take()
}

// Take returns what was kept since the previous Take, and makes room for as
// much again. The beginning of a code point whose end has not come yet stays for
// the next Take. Nothing is left after Close.
func (r *Recorder) Take() (stdout, stderr Output) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var begun [wire.Streams][]byte
	for s := range wire.Streams {
		if r.omitted[s] == 0 && r.tailSize == 0 {
			whole := trimEnd(r.head[s])
			begun[s] = bytes.Clone(r.head[s][len(whole):])
			r.head[s] = whole
		}
	}
	stdout, stderr = r.take()
	for s, rest := range begun {
		r.head[s] = rest
		r.headRoom -= int64(len(rest))
	}
	return stdout, stderr
}

// take empties the recorder. The lock is held.
func (r *Recorder) take() (stdout, stderr Output) {
	r.memory.Release(r.charged)
	r.charged, r.extra = 0, 0
	var tails [wire.Streams][]byte
	for _, c := range r.tail {
		tails[c.stream] = append(tails[c.stream], c.data...)
	}
	var kept [wire.Streams]Output
	for s := range wire.Streams {
		if r.omitted[s] == 0 {
			kept[s] = Output{Head: decode(append(r.head[s], tails[s]...))}
			continue
		}
		head, tail := trimEnd(r.head[s]), trimStart(tails[s])
		r.drop(wire.Stream(s), r.head[s][len(head):])
		r.drop(wire.Stream(s), tails[s][:len(tails[s])-len(tail)])
		if len(head) > 0 && head[len(head)-1] != '\n' {
			r.lost[s].Lines-- // its last line ends in what was dropped, or in the tail
		}
		kept[s] = Output{Head: decode(head), Tail: decode(tail), Omitted: r.omitted[s], Lost: r.lost[s]}
	}
	r.head, r.tail, r.omitted, r.lost = [wire.Streams][]byte{}, nil, [wire.Streams]int64{}, [wire.Streams]Lost{}
	r.headRoom, r.tailRoom, r.tailSize = r.limit-r.limit/2, r.limit/2, 0
	return kept[wire.Stdout], kept[wire.Stderr]
}

// decode decodes UTF-8. Each invalid byte becomes U+FFFD.
func decode(b []byte) string {
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

// trimEnd removes the beginning of a code point that a cut has split.
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

// trimStart removes the end of a code point that a cut has split.
func trimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}
