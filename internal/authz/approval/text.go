package approval

import (
	"fmt"
	"strings"
	"time"
)

// widest is how far a column of the table is filled up.
const widest = 48

// Text returns a question as people read it, with all arguments.
func (q *Question) Text() string {
	return q.text(fmt.Sprintf(", %s left", time.Until(q.Deadline).Round(time.Second)))
}

// shown is Text without the time that is left, so that it is the same for all who
// look.
func (q *Question) shown() string { return q.text("") }

func (q *Question) text(left string) string {
	var b strings.Builder
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", what, text)
		}
	}
	if q.Asks != nil {
		q.inquiry(&b, line, left)
		return b.String()
	}
	waiting := calls(q.Waiting)
	if q.More > 0 {
		waiting += fmt.Sprintf(" and %d more", q.More)
	}
	fmt.Fprintf(&b, "%s: %s, %s%s\n", q.Address(), q.Name(), waiting, left)
	line("server", q.Started)
	line("tool", q.Description)
	if q.Annotations != "" {
		line("", "the server says that it "+q.Annotations)
	}
	rule := q.Rule
	if q.Because != "" {
		rule += ": " + q.Because
	}
	line("rule", rule)
	line("asked by", q.askedBy())
	if len(q.Fixed) > 0 {
		what := "with"
		if q.Waiting > 1 {
			what = "each with"
		}
		for _, a := range q.Fixed {
			line(what, a)
			what = " "
		}
	}
	if len(q.Varies) > 0 {
		b.WriteString(q.table())
	}
	if q.More > 0 {
		line("more", fmt.Sprintf("%s more may follow that are not shown. An answer to all calls covers those of them that have", calls(q.More)))
		line("", "the same arguments, and the values that are equal above.")
	}
	return b.String()
}

// askedBy names whose code asks.
func (q *Question) askedBy() string {
	by := []string{}
	for _, part := range []struct{ what, name string }{{"client", q.Client}, {"session", q.Session}, {"execution", q.Execution}} {
		if part.name != "" {
			by = append(by, part.what+" "+part.name)
		}
	}
	return strings.Join(by, ", ")
}

// table returns the arguments that differ, a row for each call.
func (q *Question) table() string {
	widths := make([]int, len(q.Varies))
	rows := append([][]string{q.Varies}, q.Calls...)
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = min(max(widths[i], len([]rune(cell))), widest)
		}
	}
	var b strings.Builder
	for n, row := range rows {
		number := "#"
		if n > 0 {
			number = fmt.Sprint(n)
		}
		fmt.Fprintf(&b, "  %4s", number)
		for i, cell := range row {
			if i == len(row)-1 { // nothing follows
				fmt.Fprintf(&b, "  %s", cell)
				break
			}
			fmt.Fprintf(&b, "  %-*s", widths[i], cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
