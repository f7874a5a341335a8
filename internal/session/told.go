package session

import (
	"fmt"
	"sync"

	"github.com/sallyport/sallyport/internal/session/sessionlog"
)

// Bounds of what servers tell about the calls of one execution.
const (
	maxToldLines = 200
	maxToldBytes = 32 << 10
)

// Told writes lines that servers tell about the calls of an execution to the
// session's log, and nowhere else. It is safe for concurrent use; lines before the
// code runs and after it has ended are dropped.
type Told struct {
	mu                    sync.Mutex
	history               *sessionlog.Log // nil: the execution does not run
	number                uint64
	lines, bytes, dropped int
}

// Add writes a line, which is fit to be shown.
func (t *Told) Add(server, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := len(server) + len(line)
	switch {
	case t.history == nil:
	case t.dropped > 0, t.lines == maxToldLines, t.bytes+size > maxToldBytes:
		t.dropped++
	default:
		t.lines++
		t.bytes += size
		t.history.Told(t.number, server, line)
	}
}

func (t *Told) begin(history *sessionlog.Log, number uint64) {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.history, t.number = history, number
	}
}

// end says how many lines were dropped.
func (t *Told) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped > 0 {
		t.history.Told(t.number, "", fmt.Sprintf("%d more lines of servers were dropped", t.dropped))
	}
	t.history = nil
}
