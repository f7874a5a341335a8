package jsonrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// send writes a message or queues it. It waits only while the queue is full. The
// error is the context's cause, or Err.
func (c *Conn) send(ctx context.Context, message []byte) error {
	if c.sendNow(message) {
		return nil
	}
	select {
	case c.queue <- message:
		return nil
	case <-ctx.Done():
		c.sent(1)
		return context.Cause(ctx)
	case <-c.done:
		return c.Err()
	}
}

// sendNow writes what the peer takes at once, if nothing else waits: that saves
// waking the writing goroutine, which gets the rest. If sendNow returns false,
// the message counts as waiting and its caller queues it.
func (c *Conn) sendNow(message []byte) bool {
	c.sending.Lock()
	defer c.sending.Unlock()
	rest := message
	if c.now != nil && c.unsent == 0 {
		rest, _ = c.now.Write(message) // the writing goroutine meets the error again
		if len(rest) == 0 {
			return true
		}
	}
	c.unsent++
	if len(rest) == len(message) {
		return false
	}
	c.queue <- rest // nothing waits, so there is room
	return true
}

// sent records that n messages wait no more.
func (c *Conn) sent(n int) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.unsent -= n
}

func (c *Conn) cancel(id int64, cause error) {
	reason, err := json.Marshal(cause.Error())
	if err != nil {
		return
	}
	params := fmt.Appendf(nil, `{"requestId":%d,"reason":%s}`, id, reason)
	note, err := appendRequest(nil, 0, CancelMethod, params)
	if err != nil {
		return
	}
	c.notes.Add(1)
	c.sendOrDrop(note)
}

// sendOrDrop queues a message for which no caller waits. It never blocks: the
// reader calls it, and a peer that asks but does not read gets no answer.
func (c *Conn) sendOrDrop(message []byte) {
	if c.sendNow(message) {
		return
	}
	select {
	case c.queue <- message:
	default:
		c.sent(1)
		c.dropped.Add(1)
	}
}

func (c *Conn) write() {
	defer close(c.writerDone)
	var batch []byte
	for {
		var message []byte
		select {
		case message = <-c.queue:
		case <-c.done:
			return
		}
		taken := 1
		// Everything else that is waiting goes out with the same system call.
		if len(c.queue) > 0 && len(message) < handOver {
			batch = append(batch[:0], message...)
			for more := true; more && len(batch) < handOver; {
				select {
				case message = <-c.queue:
					batch = append(batch, message...)
					taken++
				default:
					more = false
				}
			}
			message = batch
		}
		_, err := c.w.Write(message)
		c.sent(taken)
		if cap(batch) > 4*handOver {
			batch = nil
		}
		if err != nil {
			// A peer that exits closes its input first or last; let what it
			// still wrote arrive.
			select {
			case <-c.readerDone:
			case <-time.After(lastAnswers):
			}
			c.fail(fmt.Errorf("write: %w", err))
			return
		}
	}
}
