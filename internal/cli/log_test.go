package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
)

func TestPlainLog(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, settings.Log{Level: slog.LevelInfo, Format: "auto"}, false, false)
	log.Debug("not shown")
	log.Warn("a file is not usable", "error", errors.New("line 1\nsallyport: forged \x1b[2J\u202e"), "server", "x\r\n")
	log.With("run", 7).WithGroup("g").Info("done", "took", "1s", "error", "of a group")
	log.Error("it ended")
	const want = `sallyport: warning: a file is not usable (server x): line 1 sallyport: forged \u{1b}[2J\u{202e}
sallyport: info: done (run 7, g.took 1s, g.error of a group)
sallyport: error: it ended
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestLogForms: programs get fields, and people messages unless they ask for
// another form.
func TestLogForms(t *testing.T) {
	for _, tt := range []struct {
		format string
		daemon bool
		want   string
	}{
		{"auto", false, "sallyport: warning: x\n"},
		{"auto", true, "time="},
		{"text", false, "time="},
		{"json", false, `{"time":`},
		{"json", true, `{"time":`},
	} {
		var out bytes.Buffer
		newLogger(&out, settings.Log{Format: tt.format}, tt.daemon, false).Warn("x")
		if got := out.String(); !bytes.HasPrefix(out.Bytes(), []byte(tt.want)) {
			t.Errorf("%s, daemon %v: got %q, want %q…", tt.format, tt.daemon, got, tt.want)
		}
	}
}
