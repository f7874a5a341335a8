package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/upstream"
)

// TestMeter: without a terminal quick work says nothing, and long work one line
// every ten seconds.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		m := (&ui{stdio: Stdio{Err: &b}}).meter("x")
		for i := range 180 {
			m.tell("pulling", int64(i)*1e6, 300e6)
			time.Sleep(150 * time.Millisecond)
		}
		m.end()
		time.Sleep(time.Minute)
		if got, want := b.String(), "x: pulling, 66.0 of 300.0 MB\nx: pulling, 133.0 of 300.0 MB\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	var b bytes.Buffer
	m := (&ui{stdio: Stdio{Err: &b}}).meter("x")
	m.tell("pulling", 1, 2)
	m.end()
	if b.Len() != 0 {
		t.Errorf("got %q, want nothing of quick work", b.String())
	}
}

// A run elsewhere shows its newest status every ten seconds, and nothing more
// once it has ended.
func TestSilentMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		s := (&ui{stdio: Stdio{Err: &b}}).silentMeter("sallyport")
		time.Sleep(time.Minute) // a local run has no status
		s.pause()
		for _, status := range []string{"queued", "queued\x1b[2J; 3 workers", "", "running"} {
			s.status(status)
			time.Sleep(7 * time.Second)
		}
		s.end()
		s.end()
		time.Sleep(time.Minute)
		if got, want := b.String(), "sallyport: queued\\u{1b}[2J; 3 workers\nsallyport: queued\\u{1b}[2J; 3 workers\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// lockedBuffer is a buffer that a meter writes to while the test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lockedBuffer) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// TestMeterOnATerminal: one line is rewritten, with a bar, amounts and the rate,
// and is never wider than the terminal.
func TestMeterOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b lockedBuffer
		m := &meter{w: &b, what: "x", terminal: true, width: 80}
		drawn := func(want string) {
			t.Helper()
			synctest.Wait()
			lines := strings.Split(b.String(), "\r\x1b[K")
			if got := lines[len(lines)-1]; got != want {
				t.Errorf("the line is %q, want %q", got, want)
			}
		}
		m.tell("pulling", 0, 40e6)
		drawn("x: pulling [....................] 0.0 of 40.0 MB")
		time.Sleep(2500 * time.Millisecond)
		m.tell("pulling", 10e6, 40e6)
		drawn("x: pulling [#####...............] 10.0 of 40.0 MB, 4.0 MB/s")
		m.tell("pulling", 11e6, 40e6) // too soon
		drawn("x: pulling [#####...............] 10.0 of 40.0 MB, 4.0 MB/s")
		m.tell("checking", 0, 0)
		drawn("x: checking")
		time.Sleep(12500 * time.Millisecond) // the clock goes on alone
		drawn("x: checking (12 s)")
		m.pause()
		drawn("")
		time.Sleep(time.Minute) // the terminal is someone else's
		drawn("")
		m.width = 20
		m.tell(strings.Repeat("long ", 20), 0, 0)
		drawn("x: long long long l")
		m.end()
		drawn("")
	})
}

// TestStarts: servers that start slowly are named; on a terminal not before a
// second, in a pipe every ten, and never once the program writes.
func TestStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, terminal := range []bool{true, false} {
			var b lockedBuffer
			s := &starts{meter: func() *meter { return &meter{w: &b, what: "sallyport", terminal: terminal, width: 80} }}
			s.begin(upstream.Definition{Name: "quick", Command: "true"})()
			synctest.Wait()
			if b.String() != "" {
				t.Errorf("terminal %v: got %q, want nothing of a quick start", terminal, b.String())
			}
			first := s.begin(upstream.Definition{Name: "files", Command: "/usr/bin/npx"})
			second := s.begin(upstream.Definition{Name: "other\x1b[2J", Command: "/opt/server"})
			time.Sleep(11 * time.Second)
			first()
			time.Sleep(11 * time.Second)
			for _, want := range []string{"sallyport: starting files with npx, which downloads it the first time, and 1 m", `sallyport: starting "other\x1b[2J"`} {
				if !strings.Contains(b.String(), want) {
					t.Errorf("terminal %v: got %q, want %q in it", terminal, b.String(), want)
				}
			}
			s.stop()
			b.Reset()
			s.begin(upstream.Definition{Name: "late", Command: "npx"})
			second()
			time.Sleep(time.Minute)
			if b.String() != "" {
				t.Errorf("terminal %v: got %q after the program wrote, want nothing", terminal, b.String())
			}
		}
	})
}
