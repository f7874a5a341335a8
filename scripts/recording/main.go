// Command recording makes a picture of a terminal from a transcript, which it reads
// while the commands run: an SVG file that types the commands and shows what they
// print, after waits as long as the real ones, at most a second and a half. It has no
// script. What is still to come is dim, so that any one moment of it can be read, and
// where it is not animated, all lines are there.
//
//	scripts/demo --record      # writes docs/demo.svg
//	scripts/demo --check       # fails if docs/demo.svg shows something else
//
// A line that begins with "$ " is a command, one with "# " a remark.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// A line of the transcript, and when it came.
type line struct {
	text string
	at   time.Duration
}

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	check := len(args) == 3 && args[0] == "--check"
	if check {
		args = args[1:]
	}
	if len(args) != 2 {
		return errors.New("usage: recording [--check] FILE.svg TITLE <TRANSCRIPT")
	}
	lines, err := read(in, out)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(args[0], []byte(picture(args[1], lines)), 0o644)
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	if got, want := shown(string(data)), text(lines); got != want {
		return fmt.Errorf("%s shows\n%s\nnow it is\n%s\nrecord it again: scripts/demo --record", args[0], got, want)
	}
	return nil
}

// read returns the lines with the time of each, and copies them to out.
func read(in io.Reader, out io.Writer) ([]line, error) {
	var lines []line
	began := time.Now()
	s := bufio.NewScanner(in)
	for s.Scan() {
		if len(lines) == 0 {
			began = time.Now() // what came before is not shown
		}
		lines = append(lines, line{s.Text(), time.Since(began)})
		fmt.Fprintln(out, s.Text())
	}
	return lines, s.Err()
}

func text(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

var description = regexp.MustCompile(`(?s)<desc[^>]*>(.*?)</desc>`)

// shown returns the transcript that a picture shows.
func shown(svg string) string {
	m := description.FindStringSubmatch(svg)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

const (
	columns          = 84
	advance, leading = 8.4, 19 // of a character, of a line
	margin, top      = 20, 42
	typed            = 25 * time.Millisecond // a character of a command
	longest          = 1500 * time.Millisecond
	pause            = 600 * time.Millisecond // before each command
)

const style = `
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; fill: #c9d1d9; white-space: pre; }
.command, .next { fill: #ffffff; font-weight: bold; }
.next { opacity: 0.5; }
.remark { fill: #8b949e; }
.figure { fill: #7ee787; font-weight: bold; }
.line { animation: appear 1ms linear backwards; }
.command { animation: type linear backwards; }
@keyframes appear { from { opacity: 0.5; } to { opacity: 1; } }
@keyframes type { from { clip-path: inset(0 100% 0 0); } to { clip-path: inset(0 0 0 0); } }
@media (prefers-reduced-motion: reduce) { .line, .command { animation: none; } }
`

var figure = regexp.MustCompile(`\d+ tokens`)

// picture returns the SVG of a transcript.
func picture(title string, lines []line) string {
	for len(lines) > 0 && lines[len(lines)-1].text == "" {
		lines = lines[:len(lines)-1]
	}
	width, height := columns*advance+2*margin, top+leading*len(lines)+margin/2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-labelledby="title transcript">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"title\">%s</title>\n<desc id=\"transcript\">%s</desc>\n<style>%s</style>\n", html.EscapeString(title), html.EscapeString(text(lines)), style)
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%.0f" height="%d" rx="8" fill="#0d1117" stroke="#484f58"/>`+"\n", width-1, height-1)
	for i, color := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="5" fill="%s"/>`+"\n", margin+4+18*i, color)
	}
	var now, before time.Duration
	for i, l := range lines {
		now += min(l.at-before, longest)
		before = l.at
		y := top + leading*i + 4
		switch rest, isCommand := strings.CutPrefix(l.text, "$ "); {
		case l.text == "":
		case isCommand:
			now += pause
			long := time.Duration(utf8.RuneCountInString(rest)) * typed
			b.WriteString(glyphs("remark line", 0, y, "$", now, 0))
			b.WriteString(glyphs("next", 2, y, rest, 0, 0))
			b.WriteString(glyphs("command", 2, y, rest, now, long))
			now += long + pause/2
		default:
			class := "line"
			if strings.HasPrefix(l.text, "# ") {
				class = "remark line"
			}
			b.WriteString(glyphs(class, 0, y, l.text, now, 0))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// glyphs returns a string at a column, as wide in every font, that appears at a time,
// or within a duration.
func glyphs(class string, column, y int, s string, at, long time.Duration) string {
	n := utf8.RuneCountInString(s)
	// An animation's delay is its own even if its duration is the class's.
	animation := fmt.Sprintf("animation-delay:%dms", at.Milliseconds())
	if long > 0 {
		animation += fmt.Sprintf(";animation-duration:%dms;animation-timing-function:steps(%d)", long.Milliseconds(), n)
	}
	marked := figure.ReplaceAllString(html.EscapeString(s), `<tspan class="figure">$0</tspan>`)
	indent := n - utf8.RuneCountInString(strings.TrimLeft(s, " "))
	return fmt.Sprintf("<text class=%q x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" style=%q>%s</text>\n",
		class, margin+advance*float64(column+indent), y, advance*float64(cmp.Or(n-indent, 1)), animation, strings.TrimLeft(marked, " "))
}
