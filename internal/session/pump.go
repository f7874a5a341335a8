package session

import (
	"sync"
	"time"
)

const (
	// pumpRoom is how much output may wait for its sink before the code that
	// writes it has to wait too.
	pumpRoom = 1 << 20
	// pumpGrace is how long a sink that is not waited for any more may take
	// over what it has got already.
	pumpGrace = time.Second
)

// pump hands output to a sink on a goroutine of its own, because the goroutine
// that reads the guest must not block on, say, a terminal that the user has
// stopped. It slows the code down to the sink's speed until it is abandoned.
type pump struct {
	sink func(Stream, []byte)

	mu        sync.Mutex
	changed   *sync.Cond
	queue     []chunk
	size      int
	running   bool
	abandoned bool
	ended     chan struct{} // of the running goroutine
}

func newPump(sink func(Stream, []byte)) *pump {
	p := &pump{sink: sink}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// push queues a copy of data.
func (p *pump) push(s Stream, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.size >= pumpRoom && !p.abandoned {
		p.changed.Wait()
	}
	if p.size >= pumpRoom {
		return
	}
	p.queue = append(p.queue, chunk{s, append([]byte(nil), data...)})
	p.size += len(data)
	if !p.running {
		p.running = true
		p.ended = make(chan struct{})
		go p.run(p.ended)
	}
}

// run hands over until nothing is queued.
func (p *pump) run(ended chan struct{}) {
	defer close(ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) > 0 {
		next := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		p.sink(next.stream, next.data)
		p.mu.Lock()
		p.size -= len(next.data)
		p.changed.Broadcast()
	}
	p.queue, p.running = nil, false
}

// abandon lets push drop what the sink has no room for.
func (p *pump) abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abandoned = true
	p.changed.Broadcast()
}

// close waits until the sink has everything; for a sink that was abandoned,
// only for a moment. Nothing may be pushed after it.
func (p *pump) close() {
	p.mu.Lock()
	ended, running, abandoned := p.ended, p.running, p.abandoned
	p.mu.Unlock()
	if !running {
		return
	}
	if !abandoned {
		<-ended
		return
	}
	select {
	case <-ended:
	case <-time.After(pumpGrace):
	}
}
