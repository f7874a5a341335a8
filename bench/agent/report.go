package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

type report struct {
	Definition int // tokens that a model reads of Sallyport before its first call
	Tasks      []outcome
	NotRun     []string
	Client     string
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// group is the sum of a group of tasks.
type group struct {
	name                                  string
	tasks, variants, solved, first, calls int
	steps                                 int
	answers                               []int
	forms                                 forms
	ours, direct, schemas                 int
}

func (g *group) add(definition int, o outcome) {
	g.tasks++
	ours := 0
	for _, v := range o.Variants {
		g.variants++
		g.calls += v.Calls
		g.steps += v.Steps
		g.answers = append(g.answers, v.Answers...)
		g.forms.add(v.Forms)
		if v.Solved {
			g.solved++
			if v.Calls == v.Steps {
				g.first++
			}
		}
		ours += v.Sent
		for _, n := range v.Answers {
			ours += n
		}
	}
	g.ours += definition + ours/max(len(o.Variants), 1)
	g.direct += o.Direct
	g.schemas += o.Schemas
}

func (r *report) writeTable(w io.Writer) error {
	all := &group{name: "all"}
	var groups []*group
	for _, o := range r.Tasks {
		if len(groups) == 0 || groups[len(groups)-1].name != o.Group {
			groups = append(groups, &group{name: o.Group})
		}
		groups[len(groups)-1].add(r.Definition, o)
		all.add(r.Definition, o)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "tasks\tn\tsolved\twithout a hint\tcalls\ttokens per answer, median\tmost\ttokens per task\tdirect: schemas + calls\tsaved")
	for _, g := range append(groups, all) {
		if g.variants == 0 {
			continue
		}
		slices.Sort(g.answers)
		direct := g.schemas + g.direct
		saved := "-"
		if direct > 0 {
			saved = fmt.Sprintf("%.0f %%", 100-100*float64(g.ours)/float64(direct))
		}
		fmt.Fprintf(t, "%s\t%d\t%d of %d\t%d\t%.2f\t%d\t%d\t%d\t%d + %d\t%s\n", g.name, g.tasks, g.solved, g.variants, g.first,
			float64(g.calls)/float64(g.variants), g.answers[len(g.answers)/2], g.answers[len(g.answers)-1],
			g.ours/g.tasks, g.schemas/g.tasks, g.direct/g.tasks, saved)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d answers to the client %s, in tokens: text %d, structured content in its place %d, both %d\n",
		all.forms.Answers, r.Client, all.forms.Text, all.forms.Structured, all.forms.Both)
	fmt.Fprintf(w, "\nTokens per task: the tool's definition (%d), the code and the answers of a variant, the mean of the three.\n", r.Definition)
	for _, o := range r.Tasks {
		for _, v := range o.Variants {
			if !v.Solved {
				fmt.Fprintf(w, "not solved: %s/%s: %s\n", o.Task, v.Name, lastLine(v.Last))
			}
		}
	}
	for _, n := range r.NotRun {
		fmt.Fprintf(w, "not run: %s\n", n)
	}
	return nil
}

// writeBrief writes what each task costs as direct calls, and through run_python.
func (r *report) writeBrief(w io.Writer) error {
	for _, o := range r.Tasks {
		g := &group{}
		g.add(r.Definition, o)
		if g.solved < g.variants {
			return fmt.Errorf("task %s was not solved: %s", o.Task, lastLine(o.Variants[0].Last))
		}
		fmt.Fprintf(w, "direct tool calls: %6d tokens (tools %d, calls and results %d)\n", g.schemas+g.direct, g.schemas, g.direct)
		fmt.Fprintf(w, "run_python:        %6d tokens (tool %d, code and answer %d)\n", g.ours, r.Definition, g.ours-r.Definition)
	}
	if len(r.NotRun) > 0 {
		return fmt.Errorf("not run: %s", strings.Join(r.NotRun, ", "))
	}
	return nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), 200)]
}
