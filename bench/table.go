package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A row is one line of the table.
type row struct {
	What    string `json:"what"`
	Reach   string `json:"reach"`             // the target, in words
	P50     string `json:"p50,omitempty"`     // or the one value
	P95     string `json:"p95,omitempty"`     //
	N       int    `json:"n,omitempty"`       // repetitions behind the figures
	Reached *bool  `json:"reached,omitempty"` // nil: a floor, or unknown
	Floor   string `json:"floor,omitempty"`   // what the machine itself does, from this run
	Note    string `json:"note,omitempty"`
	Error   string `json:"error,omitempty"` // why there is no figure
}

func (r *row) judge(ok bool) { r.Reached = &ok }

func (r row) verdict() string {
	switch {
	case r.Error != "":
		return "failed"
	case r.Reached == nil:
		return ""
	case *r.Reached:
		return "yes"
	default:
		return "NO"
	}
}

// report is what one run of the benchmark says.
type report struct {
	Machine machine `json:"machine"`
	User    string  `json:"user"`
	Rows    []row   `json:"rows"`
}

// print writes the report. The error says which rows have no figure.
func (r report) print(o options, w io.Writer) (err error) {
	if o.json {
		err = r.writeJSON(w)
	} else {
		err = r.writeTable(w)
	}
	for _, x := range r.Rows {
		if x.Error != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", x.What, x.Error))
		}
	}
	return err
}

func (r report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func (r report) writeTable(w io.Writer) error {
	head := []string{"what", "p50", "p95", "n", "reach", "reached", "the machine itself, same run"}
	lines := [][]string{head}
	for _, x := range r.Rows {
		n := ""
		if x.N > 0 {
			n = fmt.Sprint(x.N)
		}
		floor := x.Floor
		if x.Note != "" {
			floor = strings.TrimPrefix(floor+"; "+x.Note, "; ")
		}
		if x.Error != "" {
			floor = brief(x.Error)
		}
		lines = append(lines, []string{x.What, x.P50, x.P95, n, x.Reach, x.verdict(), floor})
	}
	m := r.Machine
	if _, err := fmt.Fprintf(w, "%s, %d CPUs, Linux %s, load %s, as %s\n\n", m.CPU, m.CPUs, m.Kernel, m.Load, r.User); err != nil {
		return err
	}
	return writeLines(w, lines)
}

// writeLines writes a table, whose first line is its head.
func writeLines(w io.Writer, lines [][]string) error {
	width := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, c := range l {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for i, l := range lines {
		var b strings.Builder
		for j, c := range l {
			b.WriteString("| " + c + strings.Repeat(" ", width[j]-utf8.RuneCountInString(c)) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, n := range width {
				b.WriteString("|" + strings.Repeat("-", n+2))
			}
			b.WriteString("|\n")
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// brief is the first and the last line of an error: where, and what.
func brief(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	text := strings.TrimSpace(lines[0])
	if last := strings.TrimSpace(lines[len(lines)-1]); len(lines) > 1 && last != "" {
		text += " … " + last
	}
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return text
}
