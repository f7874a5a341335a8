package worker

import (
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/batch/runpod/job"
	"github.com/sallyport/sallyport/internal/wire"
)

// Chunks of a stream: how much output one carries at most, how long output
// waits for more, and how much may wait before the code blocks.
const (
	chunkBytes   = 128 << 10 // RunPod takes 1 MB; in JSON a byte can become six
	chunkPause   = 200 * time.Millisecond
	streamBuffer = 4 << 20
)

// streamer turns the code's output into chunks, on a goroutine of its own.
type streamer struct {
	emit func(job.Chunk)
	room int64 // how much of both streams may still be sent; under mu
	wake chan struct{}
	done chan struct{}

	mu     sync.Mutex
	less   sync.Cond // signalled when less than streamBuffer waits
	parts  []part
	size   int
	at     [wire.Streams]int64 // how much of each stream precedes the waiting output
	closed bool
}

type part struct {
	stream wire.Stream
	data   []byte
	at     int64
}

// newStreamer returns a streamer that sends as much as the head that a result
// with that output limit keeps. What follows the head would not continue what
// was sent.
func newStreamer(output int64, emit func(job.Chunk)) *streamer {
	s := &streamer{emit: emit, room: output - output/2, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.less.L = &s.mu
	go s.run()
	return s
}

// write queues output. It blocks while too much is waiting.
func (s *streamer) write(stream wire.Stream, p []byte) {
	s.mu.Lock()
	for s.size > streamBuffer && s.room > 0 && !s.closed {
		s.less.Wait()
	}
	if int64(len(p)) > s.room {
		p = p[:wholeRunes(p[:s.room])]
		s.room = 0
	} else {
		s.room -= int64(len(p))
	}
	if len(p) == 0 {
		s.mu.Unlock()
		return
	}
	last := len(s.parts) - 1
	if last >= 0 && s.parts[last].stream == stream {
		s.parts[last].data = append(s.parts[last].data, p...)
	} else {
		s.parts = append(s.parts, part{stream, append([]byte(nil), p...), s.at[stream]})
	}
	s.at[stream] += int64(len(p))
	s.size += len(p)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close sends the rest and returns when it has been sent.
func (s *streamer) close() {
	s.mu.Lock()
	s.closed = true
	s.less.Broadcast()
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	<-s.done
}

func (s *streamer) run() {
	defer close(s.done)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		<-s.wake
		<-pause.C
		for s.send() {
		}
		s.mu.Lock()
		over := s.closed && len(s.parts) == 0
		s.mu.Unlock()
		if over {
			return
		}
		pause.Reset(chunkPause)
	}
}

// send sends one chunk, if there is one.
func (s *streamer) send() bool {
	s.mu.Lock()
	if len(s.parts) == 0 {
		s.mu.Unlock()
		return false
	}
	p := &s.parts[0]
	n := min(len(p.data), chunkBytes)
	// An incomplete character at the end waits for its remaining bytes.
	if whole := wholeRunes(p.data[:n]); whole > 0 && (n < len(p.data) || !s.closed) {
		n = whole
	} else if n == len(p.data) && len(s.parts) == 1 && !s.closed && whole == 0 {
		s.mu.Unlock()
		return false
	}
	c := job.Chunk{At: p.at}
	if data := string(p.data[:n]); p.stream == wire.Stderr {
		c.Stderr = data
	} else {
		c.Stdout = data
	}
	p.data, p.at = p.data[n:], p.at+int64(n)
	if len(p.data) == 0 {
		s.parts = s.parts[1:]
	}
	s.size -= n
	s.less.Broadcast()
	s.mu.Unlock()
	s.emit(c)
	return true
}

// wholeRunes returns the length of b without an incomplete character at its
// end.
func wholeRunes(b []byte) int {
	for back := 1; back <= utf8.UTFMax && back <= len(b); back++ {
		if i := len(b) - back; utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return len(b)
			}
			return i
		}
	}
	return len(b)
}
