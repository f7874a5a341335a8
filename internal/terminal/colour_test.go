package terminal

import (
	"bytes"
	"os"
	"runtime"
	"testing"
)

func TestColours(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a console needs more")
	}
	tty, pipe := New(&bytes.Buffer{}), &bytes.Buffer{}
	for _, tt := range []struct {
		w    any
		env  map[string]string
		want bool
	}{
		{tty, nil, true},
		{tty, map[string]string{"TERM": "xterm"}, true},
		{tty, map[string]string{"TERM": "dumb"}, false},
		{tty, map[string]string{"NO_COLOR": "1"}, false},
		{tty, map[string]string{"NO_COLOR": ""}, true},
		{tty, map[string]string{"NO_COLOR": "1", "FORCE_COLOR": "1"}, false},
		{tty, map[string]string{"CLICOLOR": "0"}, false},
		{tty, map[string]string{"TERM": "dumb", "FORCE_COLOR": "1"}, true},
		{pipe, nil, false},
		{pipe, map[string]string{"FORCE_COLOR": "1"}, true},
		{pipe, map[string]string{"FORCE_COLOR": "0"}, false},
		{pipe, map[string]string{"CLICOLOR_FORCE": "1"}, true},
		{pipe, map[string]string{"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, false},
	} {
		if got := Colours(tt.w, func(name string) string { return tt.env[name] }); got != tt.want {
			t.Errorf("terminal %v, %v: got %v, want %v", tt.w == tty, tt.env, got, tt.want)
		}
	}
}

// TestWidth: only a terminal has one.
func TestWidth(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, w := range []any{&bytes.Buffer{}, New(&bytes.Buffer{}), New(null), null} {
		if got := Width(w); got != 0 {
			t.Errorf("%T: got %d, want 0", w, got)
		}
	}
}
