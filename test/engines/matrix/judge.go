package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// A difference is one entry of the list of what is expected not to pass.
type difference struct {
	line              int
	engine, scenario  *regexp.Regexp
	outcome, because  string
	text              string
	applies           bool // to this host
	matched, happened bool
}

// readExpected reads the list. A line is an engine, a scenario, what becomes of
// it there ("fail" or "skip") and why; `*` stands for any text, `_` in a
// scenario for a space, as in the names of Go's tests. Before the reason,
// if=FACT restricts an entry to hosts of which the fact is true.
func readExpected(file string, facts []string) ([]difference, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []difference
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || (fields[2] != failed && fields[2] != skipped) {
			return nil, fmt.Errorf("%s:%d: want: ENGINE SCENARIO fail|skip [if=FACT] REASON", file, n)
		}
		d := difference{line: n, engine: glob(fields[0]), scenario: glob(fields[1]), outcome: fields[2],
			text: fields[0] + " " + fields[1], applies: true}
		reason := fields[3:]
		if fact, ok := strings.CutPrefix(reason[0], "if="); ok {
			d.applies, reason = slices.Contains(facts, fact), reason[1:]
		}
		if d.because = strings.Join(reason, " "); d.because == "" {
			return nil, fmt.Errorf("%s:%d: an expected difference without a reason", file, n)
		}
		list = append(list, d)
	}
	return list, sc.Err()
}

func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
}

// A matrix is everything, judged.
type matrix struct {
	Host    []string                  `json:"host"`
	Engines []string                  `json:"engines"`
	Rows    []row                     `json:"scenarios"`
	Counts  map[string]map[string]int `json:"counts"` // by engine, by outcome
	Wrong   []string                  `json:"wrong"`  // what fails the matrix; empty where it holds
}

type row struct {
	Scenario string           `json:"scenario"`
	Cells    map[string]*cell `json:"engines"` // an engine that does not run it has none
}

// judge holds what happened against what is expected. In a partial run an entry
// may name what did not run.
func judge(engines []*engine, list []difference, partial bool) *matrix {
	m := &matrix{Counts: map[string]map[string]int{}, Wrong: []string{}}
	var order []string
	seen := map[string]bool{}
	for _, e := range engines {
		m.Engines = append(m.Engines, e.name)
		m.Counts[e.name] = map[string]int{}
		for _, s := range e.order {
			if !seen[s] {
				seen[s] = true
				order = append(order, s)
			}
		}
	}
	ran := make([]bool, len(list))
	for _, s := range order {
		r := row{Scenario: s, Cells: map[string]*cell{}}
		for _, e := range engines {
			for i := range list {
				ran[i] = ran[i] || list[i].engine.MatchString(e.name)
			}
			c := e.cells[s]
			if c == nil {
				continue
			}
			r.Cells[e.name] = c
			m.Counts[e.name][c.Outcome]++
			m.judgeCell(e.name, s, c, list)
		}
		m.Rows = append(m.Rows, r)
	}
	for i, d := range list {
		if d.applies && ran[i] && !d.happened && (d.matched || !partial) {
			m.Wrong = append(m.Wrong, fmt.Sprintf("line %d of the list (%s): nothing that it names %ss any more: take it out", d.line, d.text, d.outcome))
		}
	}
	return m
}

func (m *matrix) judgeCell(engine, scenario string, c *cell, list []difference) {
	var entry *difference
	for i := range list {
		if d := &list[i]; d.applies && d.engine.MatchString(engine) && d.scenario.MatchString(scenario) {
			entry, d.matched = d, true
			if d.outcome == c.Outcome {
				d.happened = true
				c.Because = d.because
				return
			}
		}
	}
	switch {
	case c.Outcome != passed:
		c.wrong = true
		m.Wrong = append(m.Wrong, fmt.Sprintf("%s on %s: unexpected %s: %.300s", scenario, engine, c.Outcome, c.Reason))
	case entry != nil:
		c.wrong = true
		m.Wrong = append(m.Wrong, fmt.Sprintf("%s on %s passes, where line %d of the list expects it to %s: %s", scenario, engine, entry.line, entry.outcome, entry.because))
	}
}
