package guest

import (
	"context"
	"io"
	"sync"

	"github.com/sallyport/sallyport/internal/pipe"
	"github.com/sallyport/sallyport/internal/wire"
)

// sendHighWater is how much may wait for a guest that does not read before
// senders have to wait too.
const sendHighWater = 32 << 20

// sender writes frames to the guest's standard input. A frame is written by the
// caller itself where the pipe takes it at once, which saves the hand-over to
// another goroutine; what the pipe does not take is queued for a goroutine that
// exists only as long as something is queued. A guest that never reads
// therefore blocks no caller but those past the high-water mark, and those only
// until their context ends or the sender is closed.
type sender struct {
	w   io.WriteCloser
	now *pipe.Writer // nil where a write may block

	mu      sync.Mutex
	queue   []part
	queued  int
	writing bool          // the goroutine is running
	room    chan struct{} // closed when the queue shrinks below the mark
	err     error         // sticky
}

// part is a piece of a frame. done, if not nil, is called when it was written or
// dropped.
type part struct {
	b    []byte
	done func()
}

func newSender(w io.WriteCloser) *sender {
	return &sender{w: w, now: pipe.NewWriter(w)}
}

// send writes or queues f, in the order of the calls. ctx bounds the wait for
// room; a frame that was queued stays queued. done, if not nil, is called once,
// when nothing holds the frame any more: perhaps before send returns.
func (s *sender) send(ctx context.Context, f wire.Frame, done func()) (err error) {
	defer func() {
		if done != nil {
			done()
		}
	}()
	s.mu.Lock()
	for s.err == nil && s.queued >= sendHighWater {
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return s.put(f, &done)
}

// urge writes or queues a frame without waiting for room.
func (s *sender) urge(f wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	var none func()
	return s.put(f, &none)
}

// put writes what the pipe takes of f and queues the rest. The caller holds mu.
func (s *sender) put(f wire.Frame, done *func()) error {
	for i := 0; i < len(f) && s.now != nil && !s.writing; i++ {
		var err error
		if f[i], err = s.now.Write(f[i]); err != nil {
			s.fail(err)
			return s.err
		}
		if len(f[i]) > 0 {
			break
		}
	}
	s.push(f[:], done)
	if len(s.queue) > 0 && !s.writing {
		s.writing = true
		go s.drain()
	}
	return nil
}

// push queues parts and, with the last of them, takes over done. The caller holds
// mu.
func (s *sender) push(parts [][]byte, done *func()) {
	pushed := false
	for _, b := range parts {
		if len(b) > 0 {
			s.queue = append(s.queue, part{b: b})
			s.queued += len(b)
			pushed = true
		}
	}
	if pushed {
		s.queue[len(s.queue)-1].done, *done = *done, nil
	}
}

// drain writes the queue until it is empty.
func (s *sender) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && len(s.queue) > 0 {
		p := s.queue[0]
		s.queue[0] = part{}
		s.queue = s.queue[1:]
		s.mu.Unlock()
		_, err := s.w.Write(p.b)
		if p.done != nil {
			p.done()
		}
		s.mu.Lock()
		s.queued -= len(p.b)
		if err != nil {
			s.fail(err)
		}
		if s.queued < sendHighWater {
			s.release()
		}
	}
	s.queue = nil
	s.writing = false
}

// fail makes err sticky and lets go of everything. The caller holds mu.
func (s *sender) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	for _, p := range s.queue {
		if p.done != nil {
			p.done()
		}
	}
	s.queue, s.queued = nil, 0
	s.release()
}

func (s *sender) release() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// close ends every wait and closes the writer, which ends a blocked write
// where the writer can do that, as pipes and sockets can.
func (s *sender) close(err error) {
	s.mu.Lock()
	s.fail(err)
	s.mu.Unlock()
	_ = s.w.Close()
}
