package terminal

import (
	"os"
	"runtime"

	"golang.org/x/term"
)

// A Style is how this program's own text looks on a terminal.
type Style string

// The styles.
const (
	Bold   Style = "1"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Paint returns the text in this style.
func (s Style) Paint(text string) string { return "\x1b[" + string(s) + "m" + text + "\x1b[0m" }

// Colours reports whether this program colours what it writes to w: on terminals
// that have colours, unless NO_COLOR says otherwise, and elsewhere where
// FORCE_COLOR or CLICOLOR_FORCE ask for it.
func Colours(w any, env func(name string) string) bool {
	forced := func(name string) bool { return env(name) != "" && env(name) != "0" }
	switch {
	case env("NO_COLOR") != "":
		return false
	case forced("FORCE_COLOR"), forced("CLICOLOR_FORCE"):
		return true
	case env("CLICOLOR") == "0":
		return false
	}
	return Obeys(w, env)
}

// Obeys reports whether w is a terminal that obeys control sequences.
func Obeys(w any, env func(name string) string) bool {
	if !Is(w) || env("TERM") == "dumb" {
		return false
	}
	// The consoles of Windows before its Terminal show the sequences.
	return runtime.GOOS != "windows" || env("WT_SESSION") != "" || env("TERM") != "" || env("ConEmuANSI") == "ON"
}

// Width returns how many columns a terminal has, and 0 for anything else.
func Width(w any) int {
	if t, guarded := w.(*Writer); guarded {
		w = t.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
