package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"sallyport/internal/terminal"
)

// meter tells the progress of long work on standard error: over and over on one
// line of a terminal, and now and then elsewhere.
type meter struct {
	w        io.Writer
	what     string
	terminal bool

	mu    sync.Mutex
	last  time.Time
	stage string
	shown bool // a line of the terminal is not finished
}

// Times between what a meter says.
const (
	meterTerminal = 100 * time.Millisecond
	meterElse     = 5 * time.Second
)

func (a *app) meter(what string) *meter {
	m := &meter{w: a.stdio.Err, what: what, terminal: terminal.Is(a.stdio.Err)}
	return m
}

// tell says how far the work is.
func (m *meter) tell(stage string, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pause := meterElse
	if m.terminal {
		pause = meterTerminal
	}
	if stage == m.stage && time.Since(m.last) < pause {
		return
	}
	m.stage, m.last = stage, time.Now()
	line := fmt.Sprintf("%s: %s", m.what, stage)
	if total > 0 {
		line += fmt.Sprintf(", %.1f of %.1f MB", float64(done)/1e6, float64(total)/1e6)
	}
	if m.terminal {
		terminal.Own(m.w, "\r\x1b[K")
		fmt.Fprint(m.w, line)
		m.shown = true
	} else {
		fmt.Fprintln(m.w, line)
	}
}

// end leaves the terminal as a line that others can write on.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown {
		terminal.Own(m.w, "\r\x1b[K")
		m.shown = false
	}
}
