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

// plain says that a row has nothing to tell: it passes wherever it ran.
func (r *row) plain() bool {
	for _, c := range r.Cells {
		if c.Outcome != passed || c.wrong {
			return false
		}
	}
	return true
}

// A group is the plain rows of one part of the suite, in brief.
type group struct {
	name string
	rows int
	ran  map[string]int // by engine
}

func (g *group) mark(engine string) string {
	switch n := g.ran[engine]; n {
	case 0:
		return "-"
	case g.rows:
		return passed
	default:
		return fmt.Sprintf("%s (%d)", passed, n)
	}
}

func (m *matrix) print(w io.Writer, brief bool) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\t"+strings.Join(m.Engines, "\t"))
	byName := map[string]*group{}
	var groups []*group
	for i := range m.Rows {
		r := &m.Rows[i]
		if brief && r.plain() {
			name, _, _ := strings.Cut(r.Scenario, "/")
			g := byName[name]
			if g == nil {
				g = &group{name: name, ran: map[string]int{}}
				byName[name], groups = g, append(groups, g)
			}
			g.rows++
			for engine := range r.Cells {
				g.ran[engine]++
			}
			continue
		}
		fmt.Fprint(tw, r.Scenario)
		for _, name := range m.Engines {
			fmt.Fprint(tw, "\t", mark(r.Cells[name]))
		}
		fmt.Fprintln(tw)
	}
	for _, g := range groups {
		fmt.Fprintf(tw, "%s (%d more)", g.name, g.rows)
		for _, name := range m.Engines {
			fmt.Fprint(tw, "\t", g.mark(name))
		}
		fmt.Fprintln(tw)
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
