package capture

import (
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

const (
	// liveRoom is how much output may wait for the sink before the code that
	// writes it has to wait too.
	liveRoom = 1 << 20
	// liveGrace is how long an abandoned sink may take for the output that it
	// already has.
	liveGrace = time.Second
)

// live hands output to a sink on a goroutine of its own, because the goroutine
// that reads the guest must not block on, say, a terminal that the user has
// stopped. It slows the code down to the sink's speed until it is abandoned.
type live struct {
	sink func(wire.Stream, []byte)

	mu        sync.Mutex
	changed   *sync.Cond
	queue     []chunk
	size      int
	running   bool
	abandoned bool
	ended     chan struct{} // of the running goroutine
}

func newLive(sink func(wire.Stream, []byte)) *live {
	l := &live{sink: sink}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// push queues a copy of data.
func (l *live) push(s wire.Stream, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.size >= liveRoom && !l.abandoned {
		l.changed.Wait()
	}
	if l.size >= liveRoom {
		return
	}
	l.queue = append(l.queue, chunk{s, append([]byte(nil), data...)})
	l.size += len(data)
	if !l.running {
		l.running = true
		l.ended = make(chan struct{})
		go l.run(l.ended)
	}
}

// run passes output to the sink until the queue is empty.
func (l *live) run(ended chan struct{}) {
	defer close(ended)
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		next := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		l.sink(next.stream, next.data)
		l.mu.Lock()
		l.size -= len(next.data)
		l.changed.Broadcast()
	}
	l.queue, l.running = nil, false
}

// abandon lets push drop output for which there is no room.
func (l *live) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned = true
	l.changed.Broadcast()
}

// close waits until the sink has everything; for an abandoned sink, only for
// liveGrace. Nothing may be pushed afterwards.
func (l *live) close() {
	l.mu.Lock()
	ended, running, abandoned := l.ended, l.running, l.abandoned
	l.mu.Unlock()
	if !running {
		return
	}
	if !abandoned {
		<-ended
		return
	}
	select {
	case <-ended:
	case <-time.After(liveGrace):
	}
}
