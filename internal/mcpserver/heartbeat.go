package mcpserver

import (
	"bytes"
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/fold"
	"github.com/sallyport/sallyport/internal/invisible"
)

// The first heartbeat comes early, so that a client soon sees that its
// request runs; the following ones keep its own timeout from firing.
const (
	firstBeat = time.Second
	nextBeats = 3 * time.Second
)

// keptTail is how much of the output a heartbeat looks at for its message.
const keptTail = 1 << 10

// heartbeat reports to a client that asked for progress what its code does: the
// last line that it printed since the previous report, or else what it waits
// for.
type heartbeat struct {
	send     func(seconds float64, message string)
	activity broker.Activity
	sending  sync.Mutex // held while one is sent, which a stuck client delays: nothing else waits for that

	mu      sync.Mutex
	stopped bool
	start   time.Time
	tail    []byte
	printed bool // since the previous report
	timer   *time.Timer
}

// startHeartbeat starts calling send, from one goroutine at a time. If send is nil,
// the heartbeat only tells when it is asked.
func startHeartbeat(send func(seconds float64, message string)) *heartbeat {
	h := &heartbeat{send: send, start: time.Now()}
	if send == nil {
		return h
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(firstBeat, h.beat)
	return h
}

// describe returns what the next report would say.
func (h *heartbeat) describe() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.message()
}

func (h *heartbeat) beat() {
	h.sending.Lock()
	defer h.sending.Unlock()
	h.mu.Lock()
	stopped, message := h.stopped, h.message()
	h.printed = false
	h.mu.Unlock()
	if stopped {
		return
	}
	h.send(time.Since(h.start).Round(time.Millisecond).Seconds(), message)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.stopped {
		h.timer.Reset(nextBeats)
	}
}

// maxMessage bounds a message, in bytes.
const maxMessage = 200

// message says what the code does. The lock is held.
func (h *heartbeat) message() string {
	line, what := lastLine(h.tail), h.activity.String()
	if h.printed && line != "" || what == "" {
		return cmp.Or(line, "running code")
	}
	if len(what) > maxMessage { // a server may have said it
		what = strings.ToValidUTF8(what[:maxMessage], "")
	}
	return invisible.Line(what)
}

// output records what the code printed.
func (h *heartbeat) output(p []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.printed = true
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
	h.stopped = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	h.sending.Lock() // one that is being sent
	defer h.sending.Unlock()
}

// lastLine returns the last line that is not blank, complete or not. Clients show
// it on terminals.
func lastLine(tail []byte) string {
	for len(tail) > 0 {
		i := bytes.LastIndexAny(tail, "\r\n") + 1
		if line := strings.TrimSpace(fold.Line(strings.ToValidUTF8(string(tail[i:]), ""))); line != "" {
			return invisible.Line(strings.ToValidUTF8(line[max(0, len(line)-maxMessage):], ""))
		}
		tail = tail[:max(0, i-1)]
	}
	return ""
}
