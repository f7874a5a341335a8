package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// write keeps the matrix for programs.
func (m *matrix) write(file string) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// mark is how a cell looks in the table.
func mark(c *cell) string {
	switch {
	case c == nil:
		return "-"
	case c.wrong && c.Outcome == passed:
		return "PASS?"
	case c.wrong:
		return strings.ToUpper(c.Outcome)
	case c.Outcome == failed:
		return "differs"
	default:
		return c.Outcome
	}
}

// plain says that a row has nothing to tell: it passes wherever it ran, and it
// ran on every engine.
func (m *matrix) plain(r *row) bool {
	for _, name := range m.Engines {
		if c := r.Cells[name]; c == nil || c.Outcome != passed || c.wrong {
			return false
		}
	}
	return true
}

func (m *matrix) print(w io.Writer, brief bool) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\t"+strings.Join(m.Engines, "\t"))
	collapsed := map[string]int{}
	var groups []string
	for i := range m.Rows {
		r := &m.Rows[i]
		if brief && m.plain(r) {
			group, _, _ := strings.Cut(r.Scenario, "/")
			if collapsed[group] == 0 {
				groups = append(groups, group)
			}
			collapsed[group]++
			continue
		}
		fmt.Fprint(tw, r.Scenario)
		for _, name := range m.Engines {
			fmt.Fprint(tw, "\t", mark(r.Cells[name]))
		}
		fmt.Fprintln(tw)
	}
	for _, g := range groups {
		fmt.Fprintf(tw, "%s (%d more)%s\n", g, collapsed[g], strings.Repeat("\tpass", len(m.Engines)))
	}
	for _, o := range []string{passed, skipped, failed} {
		fmt.Fprint(tw, "= "+o)
		for _, name := range m.Engines {
			fmt.Fprintf(tw, "\t%d", m.Counts[name][o])
		}
		fmt.Fprintln(tw)
	}
	_ = tw.Flush()
	m.printReasons(w)
	for _, text := range m.Wrong {
		fmt.Fprintln(w, "WRONG:", text)
	}
	if len(m.Wrong) == 0 {
		fmt.Fprintln(w, "Everything is as expected.")
	}
}

// printReasons tells each expected difference once, with the scenarios that it
// is about.
func (m *matrix) printReasons(w io.Writer) {
	type difference struct{ outcome, because string }
	where := map[difference][]string{}
	var order []difference
	for i := range m.Rows {
		for _, name := range m.Engines {
			c := m.Rows[i].Cells[name]
			if c == nil || c.Because == "" {
				continue
			}
			d := difference{c.Outcome, c.Because}
			if where[d] == nil {
				order = append(order, d)
			}
			where[d] = append(where[d], name+" "+m.Rows[i].Scenario)
		}
	}
	if len(order) > 0 {
		fmt.Fprintln(w, "Expected differences:")
	}
	for _, d := range order {
		fmt.Fprintf(w, "  %s, for %s:\n", d.outcome, d.because)
		for _, s := range where[d] {
			fmt.Fprintln(w, "    "+s)
		}
	}
}
