// Package table prints tables that fit a terminal: where one is too wide, the
// widest columns wrap.
package table

import (
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// A Table is rows of cells. Cells are text for a terminal already: one line, and
// nothing that moves the cursor.
type Table struct {
	Head    []string            // may be nil
	Width   int                 // of the terminal; 0: nothing is wrapped
	Indent  int                 // spaces before each line
	Heading func(string) string // paints the line with the head; may be nil
	rows    [][]string
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Drop removes the last column.
func (t *Table) Drop() {
	for _, row := range append(t.rows, t.Head) {
		if len(row) > 0 {
			row[len(row)-1] = ""
		}
	}
}

const (
	gap    = 2  // spaces between columns
	narrow = 10 // a column is not made narrower than that
)

// Fits reports whether no column needs to wrap.
func (t *Table) Fits() bool { return t.Width <= 0 || t.total(t.widths()) <= t.Width }

// widths returns the widths that the columns want.
func (t *Table) widths() []int {
	var out []int
	for _, row := range append([][]string{t.Head}, t.rows...) {
		for i, cell := range row {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] = max(out[i], Columns(cell))
		}
	}
	return out
}

func (t *Table) total(widths []int) int {
	sum := t.Indent - gap
	for _, w := range widths {
		sum += w
		if w > 0 {
			sum += gap
		}
	}
	return sum
}

// fit makes the widest columns narrower until the table fits, or all are narrow.
func (t *Table) fit(widths []int) {
	if t.Width <= 0 || len(widths) == 0 {
		return
	}
	for over := t.total(widths) - t.Width; over > 0; over-- {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrow {
			return
		}
		widths[widest]--
	}
}

// Write prints the table.
func (t *Table) Write(w io.Writer) error {
	widths := t.widths()
	t.fit(widths)
	var b strings.Builder
	if len(t.Head) > 0 {
		head := t.lines(t.Head, widths)
		if t.Heading != nil {
			head = t.Heading(strings.TrimSuffix(head, "\n")) + "\n"
		}
		b.WriteString(head)
	}
	for _, row := range t.rows {
		b.WriteString(t.lines(row, widths))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines prints one row, which has more lines than one where a cell wraps.
func (t *Table) lines(row []string, widths []int) string {
	cells, height := make([][]string, len(row)), 1
	for i, cell := range row {
		cells[i] = wrap(cell, widths[i])
		height = max(height, len(cells[i]))
	}
	var b strings.Builder
	for l := range height {
		line, at := strings.Repeat(" ", t.Indent), 0
		for i, cell := range cells {
			if widths[i] == 0 {
				continue
			}
			text := ""
			if l < len(cell) {
				text = cell[l]
			}
			line += strings.Repeat(" ", at) + text
			at = widths[i] - Columns(text) + gap
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// wrap breaks a cell into lines of at most this many columns: at spaces, or in
// the middle of a word that is longer.
func wrap(cell string, most int) []string {
	if Columns(cell) <= most {
		return []string{cell}
	}
	var lines []string
	line, used := "", 0
	end := func() {
		lines = append(lines, strings.TrimRight(line, " "))
		line, used = "", 0
	}
	for _, word := range strings.SplitAfter(cell, " ") {
		if used > 0 && used+Columns(strings.TrimSuffix(word, " ")) > most {
			end()
		}
		for _, r := range word {
			n := columns(r)
			if used+n > most && r != ' ' {
				end()
			}
			line, used = line+string(r), used+n
		}
	}
	if line != "" {
		end()
	}
	return slices.DeleteFunc(lines, func(l string) bool { return l == "" })
}

// Columns returns how many columns a string takes on a terminal.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		n += columns(r)
	}
	return n
}

func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
