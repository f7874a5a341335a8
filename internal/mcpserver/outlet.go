package mcpserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/pipe"
)

// mostUnread is how many bytes of results may wait for a client that does not
// read before no more code runs for it.
const mostUnread = 16 << 20

// outlet bounds what waits for the client.
type outlet struct {
	// encoding holds a token while an answer is encoded and written: an encoded
	// answer takes several times the memory of its result.
	encoding chan struct{}

	mu    sync.Mutex
	bytes int
	room  chan struct{} // closed when there is room; nil: nothing waits
}

func newOutlet() *outlet { return &outlet{encoding: make(chan struct{}, 1)} }

// add counts n bytes until done is called.
func (o *outlet) add(n int) (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes += n
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.bytes -= n
		if o.bytes <= mostUnread && o.room != nil {
			close(o.room)
			o.room = nil
		}
	}
}

// stuckAfter is how long a call waits with its place in the queue of a session,
// which other clients may use, for its client to read.
const stuckAfter = 10 * time.Second

// errStuck is the error of a call that was not run because its client does not read.
var errStuck = fmt.Errorf("nothing was run: the client has not read %d MB of earlier answers", mostUnread>>20)

// wait waits for room until ctx ends, and returns an error if the client does not
// read.
func (o *outlet) wait(ctx context.Context) error {
	var stuck <-chan time.Time
	for {
		o.mu.Lock()
		if o.bytes <= mostUnread {
			o.mu.Unlock()
			return nil
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		if stuck == nil {
			stuck = time.After(stuckAfter)
		}
		select {
		case <-room:
		case <-stuck:
			return errStuck
		case <-ctx.Done():
			return nil
		}
	}
}

// enter waits for its turn to encode an answer. It stops waiting when stop is
// done: what is encoded after that is not written.
func (o *outlet) enter(stop context.Context) (leave func()) {
	select {
	case o.encoding <- struct{}{}:
		return func() { <-o.encoding }
	case <-stop.Done():
		return func() {}
	}
}

// patienceToRead is how long a client that has closed its end may take to read one
// message.
const patienceToRead = time.Minute

// drain waits until all requests are answered, as long as the client can read the
// answers.
func (c *conn) drain() {
	c.mu.Lock()
	idle := make(chan struct{})
	if c.running == 0 {
		close(idle)
	}
	c.idle = idle
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.stop)
	defer cancel()
	gone := func(reason string) {
		c.log.Info("the client has gone; running code is stopped", "reason", reason)
		cancel()
	}
	go func() {
		if pipe.Deserted(ctx, c.out) {
			gone("its end of the output is closed")
		}
	}()
	for {
		select {
		case c.writing <- struct{}{}: // no write is under way
			<-c.writing
		case <-time.After(patienceToRead):
			gone("it does not read")
		case <-ctx.Done():
		}
		select {
		case <-idle:
			return
		case <-ctx.Done():
			return
		case <-time.After(patienceToRead):
		}
	}
}
