package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/table"
	"github.com/sallyport/sallyport/internal/terminal"
)

func (u *ui) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(u.stdio.Out, plainJSON(b.String()))
	return err
}

// printJSONLine prints JSON on one line.
func (u *ui) printJSONLine(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = io.WriteString(u.stdio.Out, plainJSON(string(data))+"\n")
	return err
}

// plainJSON returns JSON with the same meaning but without characters that
// affect a terminal: JSON itself allows some control characters.
func plainJSON(text string) string {
	unseen := func(r rune) bool {
		const nonJoiner, joiner = 0x200C, 0x200D // part of writing
		return r >= 0x7F && r != nonJoiner && r != joiner && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	}
	if !strings.ContainsFunc(text, unseen) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch high, low := utf16.EncodeRune(r); {
		case !unseen(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// printable prepares untrusted text for a terminal: it quotes the text if it
// contains anything that moves the cursor.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// movesCursor reports whether text of several lines contains terminal controls
// other than line breaks.
func movesCursor(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return unicode.Is(unicode.Cc, r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
	})
}

// oneLine puts JSON on one line.
func oneLine(raw string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(raw)) != nil {
		return raw
	}
	return b.String()
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

func memoryNow(n *int64) string {
	if n == nil {
		return "-"
	}
	return readable(*n)
}

func bytesOrDash(n int64) string {
	if n == 0 {
		return "-"
	}
	return readable(n)
}

// readable formats a number of bytes for people.
func readable(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/(1<<10), 0
	for v >= 1000 && u < len(units)-1 {
		v, u = v/(1<<10), u+1
	}
	if v < 10 {
		return fmt.Sprintf("%.1f %cB", v, units[u])
	}
	return fmt.Sprintf("%.0f %cB", v, units[u])
}

// ago formats how long ago t was.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case t.IsZero():
		return "-"
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// firstLine returns the first line of s.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// table returns a table that fits standard output if that is a terminal.
func (u *ui) table(head ...string) *table.Table {
	return &table.Table{
		Head: head, Width: terminal.Width(u.stdio.Out),
		Heading: func(s string) string { return u.paint(u.stdio.Out, terminal.Bold, s) },
	}
}

// paint returns the text in a style, if w has colours.
func (u *ui) paint(w io.Writer, s terminal.Style, text string) string {
	if !terminal.Colours(w, u.variable) {
		return text
	}
	return s.Paint(text)
}

// variable returns an environment variable.
func (u *ui) variable(name string) string {
	if u.App == nil {
		return ""
	}
	return u.Env[name]
}

// escaped escapes everything in text of several lines except printable
// characters and line breaks.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || r == ' ' || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return invisible.Escape(b.String()) // some printable characters are invisible
}

// agreed asks the user a question. No answer means no, and so does a signal.
func (u *ui) agreed(question string) bool {
	fmt.Fprintf(u.stdio.Out, "%s [y/N] ", question)
	line, _ := u.line() // no answer is no
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	fmt.Fprintln(u.stdio.Out)
	return false
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
