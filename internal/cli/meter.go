package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"sallyport/internal/terminal"
)

// meter tells the progress of long work on standard error: over and over on one
// line of a terminal, and elsewhere with one line every ten seconds, so that
// quick work says nothing there.
type meter struct {
	w        io.Writer
	what     string
	terminal bool
	stop     func()

	mu    sync.Mutex
	last  time.Time
	stage string
	line  string
	shown bool // a line of the terminal is not finished
}

// Times between what a meter says.
const (
	meterTerminal = 100 * time.Millisecond
	meterElse     = 10 * time.Second
)

// meter returns a meter, which the caller ends.
func (a *app) meter(what string) *meter {
	m := &meter{w: a.stdio.Err, what: what, terminal: terminal.Is(a.stdio.Err), stop: func() {}}
	if !m.terminal {
		m.line = what + ": waiting"
		done := make(chan struct{})
		m.stop = sync.OnceFunc(func() { close(done) })
		go m.repeat(done)
	}
	return m
}

// repeat prints the line as it is, every ten seconds.
func (m *meter) repeat(done <-chan struct{}) {
	tick := time.NewTicker(meterElse)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			m.mu.Lock()
			select {
			case <-done: // nothing is said after the end
			default:
				fmt.Fprintln(m.w, m.line)
			}
			m.mu.Unlock()
		}
	}
}

// tell says how far the work is.
func (m *meter) tell(stage string, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.terminal && stage == m.stage && time.Since(m.last) < meterTerminal {
		return
	}
	m.stage, m.last = stage, time.Now()
	m.line = fmt.Sprintf("%s: %s", m.what, stage)
	if total > 0 {
		m.line += fmt.Sprintf(", %.1f of %.1f MB", float64(done)/1e6, float64(total)/1e6)
	}
	if m.terminal {
		terminal.Own(m.w, "\r\x1b[K")
		fmt.Fprint(m.w, m.line)
		m.shown = true
	}
}

// pause leaves the terminal as a line that others can write on.
func (m *meter) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown {
		terminal.Own(m.w, "\r\x1b[K")
		m.shown = false
	}
}

// end says nothing more.
func (m *meter) end() {
	m.pause()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop()
}
