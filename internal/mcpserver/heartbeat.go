package mcpserver

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// The first heartbeat comes early, so that a client soon sees that its
// request runs; the following ones keep its own timeout from firing.
const (
	firstBeat = time.Second
	nextBeats = 3 * time.Second
)

// keptTail is how much of the output a heartbeat looks at for its message.
const keptTail = 1 << 10

// heartbeat tells a client that asked for progress that its code still runs,
// with the last line that the code printed.
type heartbeat struct {
	send func(seconds float64, message string)

	mu      sync.Mutex
	stopped bool
	start   time.Time
	tail    []byte
	timer   *time.Timer
}

// startHeartbeat begins to call send, by one goroutine at a time.
func startHeartbeat(send func(seconds float64, message string)) *heartbeat {
	h := &heartbeat{send: send, start: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(firstBeat, h.beat)
	return h
}

func (h *heartbeat) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	h.send(time.Since(h.start).Round(time.Millisecond).Seconds(), lastLine(h.tail))
	h.timer.Reset(nextBeats)
}

// output notes what the code printed.
func (h *heartbeat) output(p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(p) >= keptTail {
		h.tail = append(h.tail[:0], p[len(p)-keptTail:]...)
		return
	}
	if over := len(h.tail) + len(p) - keptTail; over > 0 {
		h.tail = append(h.tail[:0], h.tail[over:]...)
	}
	h.tail = append(h.tail, p...)
}

// stop ends the heartbeats. None is sent after it has returned, because a
// client must not see progress of a request that has been answered.
func (h *heartbeat) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	h.timer.Stop()
}

// lastLine is the last line that is not blank, complete or not.
func lastLine(tail []byte) string {
	tail = bytes.TrimRight(tail, " \t\r\n")
	if i := bytes.LastIndexAny(tail, "\r\n"); i >= 0 {
		tail = tail[i+1:]
	}
	const maxMessage = 200
	if len(tail) > maxMessage {
		tail = tail[len(tail)-maxMessage:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(tail), ""))
}
