package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/table"
	"github.com/sallyport/sallyport/internal/terminal"
	"github.com/sallyport/sallyport/internal/upstream"
)

// meter shows the progress of long work on standard error. On a terminal it
// rewrites one line; elsewhere it prints a line every ten seconds, so quick
// work prints nothing.
type meter struct {
	w        io.Writer
	what     string
	terminal bool
	width    int  // of the terminal
	silent   bool // print nothing

	mu          sync.Mutex
	done        chan struct{} // closed at the end; nil: no lines are repeated
	ended       bool
	held        bool // nothing is shown for now
	drawn       time.Time
	stage       string
	began       time.Time // the stage
	first       int64     // what was done when the stage began
	have, total int64     // bytes
	shown       bool      // a line on the terminal is unfinished
}

// How often a meter prints.
const (
	meterTerminal = 100 * time.Millisecond
	meterClock    = time.Second // on a terminal where nothing is reported
	meterElse     = 10 * time.Second
	clockFrom     = 3 * time.Second // how long a stage takes before its time is shown
)

// meter returns a meter, which the caller must end.
func (u *ui) meter(what string) *meter {
	m := u.silentMeter(what)
	m.later("waiting")
	return m
}

// silentMeter is meter for work of which nothing is said before the first
// stage. A command that prints JSON says nothing at all.
func (u *ui) silentMeter(what string) *meter {
	return &meter{
		w: u.stdio.Err, what: what, silent: u.quiet, terminal: terminal.Obeys(u.stdio.Err, u.variable),
		width: cmp.Or(terminal.Width(u.stdio.Err), 80),
	}
}

// set sets what the line says, and repeats it from now on. The caller holds the
// lock.
func (m *meter) set(stage string, have, total int64) {
	if stage != m.stage {
		m.stage, m.began, m.first = stage, time.Now(), have
	}
	m.have, m.total = have, total
	if m.done == nil && !m.ended && !m.silent {
		m.done = make(chan struct{})
		go m.repeat(m.done)
	}
}

// repeat prints the line as it is: on a terminal while it stands there, and
// elsewhere every ten seconds.
func (m *meter) repeat(done <-chan struct{}) {
	every := meterElse
	if m.terminal {
		every = meterClock
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			m.mu.Lock()
			switch {
			case m.ended, m.held:
			case !m.terminal:
				fmt.Fprintln(m.w, m.line())
			case m.shown:
				m.draw()
			}
			m.mu.Unlock()
		}
	}
}

// amounts returns how much is done, and "" if that is not known.
func (m *meter) amounts() string {
	if m.total <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f of %.1f MB", float64(m.have)/1e6, float64(m.total)/1e6)
}

// line returns the line for a file or a pipe.
func (m *meter) line() string {
	line := m.what + ": " + m.stage
	if amounts := m.amounts(); amounts != "" {
		line += ", " + amounts
	}
	return line
}

// draw rewrites the terminal's line. The caller holds the lock.
func (m *meter) draw() {
	const bar = 20
	line, took := m.what+": "+m.stage, time.Since(m.began)
	if m.total > 0 {
		full := int(min(max(m.have, 0), m.total) * bar / m.total)
		line += " [" + strings.Repeat("#", full) + strings.Repeat(".", bar-full) + "] " + m.amounts()
		if took >= meterClock && m.have > m.first {
			line += fmt.Sprintf(", %.1f MB/s", float64(m.have-m.first)/1e6/took.Seconds())
		}
	} else if took >= clockFrom {
		line += fmt.Sprintf(" (%.0f s)", took.Seconds())
	}
	// A line that wraps could not be rewritten.
	for table.Columns(line) >= m.width {
		_, size := utf8.DecodeLastRuneInString(line)
		line = line[:len(line)-size]
	}
	terminal.Own(m.w, "\r\x1b[K")
	fmt.Fprint(m.w, line)
	m.drawn, m.shown = time.Now(), true
}

// tell updates the progress.
func (m *meter) tell(stage string, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended || m.silent {
		return
	}
	soon := stage == m.stage && m.shown && time.Since(m.drawn) < meterTerminal
	m.set(stage, done, total)
	if m.terminal && !soon && !m.held {
		m.draw()
	}
}

// later is tell for work that is mostly quick: the terminal shows it if it takes
// a second.
func (m *meter) later(stage string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ended && !m.silent {
		m.set(stage, 0, 0)
		m.shown = m.terminal
	}
}

// pause ends the current line so that others can write.
func (m *meter) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown && !m.drawn.IsZero() {
		terminal.Own(m.w, "\r\x1b[K")
	}
	m.shown, m.drawn = false, time.Time{}
}

// hold shows nothing, or shows its line again. A meter that is nil shows
// nothing anyway.
func (m *meter) hold(held bool) {
	if m == nil {
		return
	}
	if held {
		m.pause()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = held
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

// starts shows which servers are starting. A first start can take minutes: npx
// and its like download the program.
type starts struct {
	meter func() *meter

	mu    sync.Mutex
	now   *meter // nil: nothing starts
	texts []string
	over  bool
	held  bool // nothing is shown for now
}

// newStarts returns a starts for the commands that a person waits for.
func (u *ui) newStarts() *starts {
	return &starts{meter: func() *meter { return u.silentMeter("sallyport") }}
}

// begin implements upstream.Options.Starting.
func (s *starts) begin(d upstream.Definition) (ended func()) {
	text := startText(d)
	s.change(func() { s.texts = append(s.texts, text) })
	return func() {
		s.change(func() {
			if i := slices.Index(s.texts, text); i >= 0 {
				s.texts = slices.Delete(s.texts, i, i+1)
			}
		})
	}
}

// stop shows nothing more: from now on the terminal is the program's.
func (s *starts) stop() {
	if s != nil {
		s.change(func() { s.over, s.texts = true, nil })
	}
}

// hold shows nothing, or goes on.
func (s *starts) hold(held bool) {
	if s != nil {
		s.change(func() { s.held = held })
	}
}

// aside calls what writes to the terminal.
func (s *starts) aside(write func()) {
	if s == nil {
		write()
		return
	}
	s.change(func() {
		if s.now != nil {
			s.now.pause()
		}
		write()
	})
}

// asideWriter writes to standard error without touching the line of the starts.
type asideWriter struct{ u *ui }

func (a asideWriter) Write(p []byte) (n int, err error) {
	n = len(p)
	a.u.screen.aside(a.u.stdio.Err, p, func(p []byte) {
		a.u.starts.aside(func() { _, err = a.u.stdio.Err.Write(p) })
	})
	return n, err
}

func (s *starts) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
	if s.over || s.held || len(s.texts) == 0 {
		if s.now != nil {
			s.now.end()
			s.now = nil
		}
		return
	}
	if s.now == nil {
		s.now = s.meter()
	}
	text := s.texts[0]
	if more := len(s.texts) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	s.now.later(text)
}

// downloaders are programs that download what they run.
var downloaders = []string{"npx", "npm", "pnpm", "bunx", "uvx", "uv", "pipx", "docker", "podman", "deno"}

// startText says what starts, and why that may take long.
func startText(d upstream.Definition) string {
	name := invisible.Line(printable(d.Name))
	if d.Remote() != nil {
		return "connecting to " + name
	}
	program := strings.TrimSuffix(filepath.Base(d.Command), ".cmd")
	if slices.Contains(downloaders, program) {
		return fmt.Sprintf("starting %s with %s, which downloads it the first time", name, program)
	}
	return "starting " + name
}

// show shows what the program that runs in a hub waits for; empty: nothing.
func (s *starts) show(what string) {
	s.change(func() {
		if s.texts = nil; what != "" && !s.over {
			s.texts = []string{invisible.Escape(what)}
		}
	})
}

// awaitImage waits for the configured image if it is being pulled, or for the
// embedded interpreter if it is being compiled, and shows the progress.
func (u *ui) awaitImage(core *app.Core) { u.await(core.PendingImage(u.ctx)) }

// await waits for a pull or a compilation, and shows its progress. It waits for nothing
// where p is nil.
func (u *ui) await(p *app.ImagePull) {
	if p == nil {
		return
	}
	meter := u.meter(awaited(u.Settings))
	defer meter.end()
	await(u.ctx, p, meter.tell)
}

// awaited names what a pull or a compilation is for.
func awaited(set *settings.Settings) string {
	if set.Image == "" {
		return "first start"
	}
	return "image " + set.Image
}

// await waits for a pull or a compilation, and tells its progress.
func await(ctx context.Context, p *app.ImagePull, tell func(stage string, done, total int64)) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.Done():
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			if stage, done, total := p.Progress(); stage != "" {
				tell(stage, done, total)
			}
		}
	}
}
