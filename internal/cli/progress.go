package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/terminal"
)

// meter shows the progress of long work on standard error. On a terminal it
// rewrites one line; elsewhere it prints a line every ten seconds, so quick
// work prints nothing.
type meter struct {
	w        io.Writer
	what     string
	terminal bool

	mu    sync.Mutex
	done  chan struct{} // closed at the end; nil: no lines are repeated
	ended bool
	last  time.Time
	stage string
	line  string
	shown bool // a line on the terminal is unfinished
}

// How often a meter prints.
const (
	meterTerminal = 100 * time.Millisecond
	meterElse     = 10 * time.Second
)

// meter returns a meter, which the caller must end.
func (u *ui) meter(what string) *meter {
	m := u.silentMeter(what)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show("waiting")
	return m
}

// silentMeter is meter for work of which nothing is said before the first
// stage.
func (u *ui) silentMeter(what string) *meter {
	return &meter{w: u.stdio.Err, what: what, terminal: terminal.Obeys(u.stdio.Err, u.variable)}
}

// show sets the line. Elsewhere than on a terminal it is repeated from now on.
// The caller holds the lock.
func (m *meter) show(text string) {
	m.line = m.what + ": " + text
	if !m.terminal && m.done == nil && !m.ended {
		m.done = make(chan struct{})
		go m.repeat(m.done)
	}
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
			if !m.ended {
				fmt.Fprintln(m.w, m.line)
			}
			m.mu.Unlock()
		}
	}
}

// tell updates the progress.
func (m *meter) tell(stage string, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || m.terminal && stage == m.stage && time.Since(m.last) < meterTerminal {
		return
	}
	m.stage, m.last = stage, time.Now()
	text := stage
	if total > 0 {
		text += fmt.Sprintf(", %.1f of %.1f MB", float64(done)/1e6, float64(total)/1e6)
	}
	m.show(text)
	if m.terminal {
		terminal.Own(m.w, "\r\x1b[K")
		fmt.Fprint(m.w, m.line)
		m.shown = true
	}
}

// pause ends the current line so that others can write.
func (m *meter) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown {
		terminal.Own(m.w, "\r\x1b[K")
		m.shown = false
	}
}

// status is tell for a run elsewhere. An empty status changes nothing.
func (m *meter) status(status string) {
	if status != "" {
		m.tell(invisible.Escape(status), 0, 0)
	}
}

// end says nothing more.
func (m *meter) end() {
	m.pause()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done != nil && !m.ended {
		close(m.done)
	}
	m.ended = true
}

// awaitImage waits for the configured image if it is being pulled, and shows
// the progress.
func (u *ui) awaitImage(sys *app.System) {
	p := sys.PendingImage(u.ctx)
	if p == nil {
		return
	}
	meter := u.meter("image " + u.Settings.Image)
	defer meter.end()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.Done():
			return
		case <-tick.C:
			if stage, done, total := p.Progress(); total > 0 {
				meter.tell(stage, done, total)
			}
		}
	}
}
