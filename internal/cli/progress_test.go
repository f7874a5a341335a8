package cli

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
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
