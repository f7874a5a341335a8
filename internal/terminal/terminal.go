// Package terminal keeps untrusted output from controlling a terminal. Only
// text and colours are written to it; everything else that a terminal would act
// on, or that a person would not see, is escaped. Files and pipes get the bytes
// unchanged.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/sallyport/sallyport/internal/invisible"
)

// Is reports whether w is a terminal: a character device, which a console of
// Windows is, too.
func Is(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		_, ok = w.(*Writer)
		return ok
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Real reports whether w is a terminal that people type at, and not another
// character device.
func Real(w any) bool {
	if t, guarded := w.(*Writer); guarded {
		w = t.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Guard returns a Writer if w is a terminal, and otherwise w itself.
func Guard(w io.Writer) io.Writer {
	if _, guarded := w.(*Writer); guarded || !Is(w) {
		return w
	}
	return New(w)
}

// Flush ends what Guard returned.
func Flush(w io.Writer) {
	if t, ok := w.(*Writer); ok {
		t.Flush()
	}
}

// Own writes this program's own control sequences to a terminal. Other writers
// get them unchanged.
func Own(w io.Writer, s string) {
	if t, ok := w.(*Writer); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		_, _ = io.WriteString(t.w, s) // as lost as any other output there
		return
	}
	_, _ = io.WriteString(w, s)
}

// Writer passes text and colours on. It is safe for concurrent use.
type Writer struct {
	mu       sync.Mutex
	w        io.Writer
	held     []byte // the beginning of a character or of a colour
	prev     rune
	coloured bool
}

// New returns a Writer to a terminal.
func New(w io.Writer) *Writer { return &Writer{w: w} }

// maxHeld bounds a colour sequence.
const maxHeld = 64

// Write implements io.Writer. A character or a sequence may be split between
// two writes.
func (t *Writer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.held) == 0 && plain(p) {
		if len(p) > 0 {
			t.prev = rune(p[len(p)-1])
		}
		return t.w.Write(p)
	}
	if err := t.pass(append(t.held, p...), false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what was held back, and ends colours.
func (t *Writer) Flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.pass(t.held, true)
	if t.coloured {
		_, _ = io.WriteString(t.w, "\x1b[0m")
		t.coloured = false
	}
}

// plain reports whether p has only printable ASCII characters, newlines and
// tabs.
func plain(p []byte) bool {
	for _, c := range p {
		if c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// pass writes data except for an unfinished end, which is held unless this is
// the last data.
func (t *Writer) pass(data []byte, last bool) error {
	var b strings.Builder
	for len(data) > 0 {
		if n, ok := colour(data); n > 0 && ok {
			b.Write(data[:n])
			t.coloured = !strings.HasSuffix(string(data[:n]), "[0m") && string(data[:n]) != "\x1b[m"
			data = data[n:]
			continue
		} else if n < 0 && !last {
			break
		}
		if data[0] == '\r' {
			if len(data) == 1 && !last {
				break
			}
			data = data[1:]
			if len(data) == 0 || data[0] != '\n' { // it would write over the line
				b.WriteByte('\n')
				t.prev = '\n'
			}
			continue
		}
		if !last && !utf8.FullRune(data) {
			break
		}
		r, size := utf8.DecodeRune(data)
		t.show(&b, r, size, data[0])
		data = data[size:]
	}
	t.held = append([]byte(nil), data...)
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (t *Writer) show(b *strings.Builder, r rune, size int, first byte) {
	switch {
	case r == utf8.RuneError && size == 1, r < utf8.RuneSelf && unicode.IsControl(r) && r != '\n' && r != '\t':
		fmt.Fprintf(b, `\x%02x`, first)
	case invisible.Is(t.prev, r):
		fmt.Fprintf(b, `\u{%x}`, r)
	default:
		b.WriteRune(r)
	}
	t.prev = r
}

// colour reads a sequence that sets colours or the style of letters at the
// beginning of data: its length, and whether it may pass. The length is -1 where
// more is needed to tell, and 0 where there is none.
func colour(data []byte) (n int, ok bool) {
	if data[0] != 0x1b {
		return 0, false
	}
	if len(data) == 1 {
		return -1, false
	}
	if data[1] != '[' {
		return 0, false
	}
	for i, c := range data[2:min(len(data), maxHeld)] {
		switch {
		case c == 'm':
			return i + 3, !conceals(string(data[2 : i+2]))
		case (c < '0' || c > '9') && c != ';' && c != ':':
			return 0, false
		}
	}
	if len(data) >= maxHeld {
		return 0, false
	}
	return -1, false
}

// conceals reports whether parameters make text invisible.
func conceals(parameters string) bool {
	fields := strings.Split(parameters, ";")
	for i := 0; i < len(fields); i++ {
		whole, _, colons := strings.Cut(fields[i], ":")
		n, _ := strconv.Atoi(whole)
		switch {
		case n == 8:
			return true
		case (n == 38 || n == 48 || n == 58) && !colons && i+1 < len(fields):
			switch fields[i+1] {
			case "5":
				i += 2
			case "2":
				i += 4
			}
		}
	}
	return false
}
