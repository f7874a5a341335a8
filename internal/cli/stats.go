package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/metrics"
)

type statsCmd struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*statsCmd) Help() string {
	return `The numbers are those of the Sallyports that run, since each began; durations are half of all (p50), and what 95 and 99 of 100 did not exceed. The setting metrics.listen publishes the same for Prometheus.

Examples:
  sallyport stats
  sallyport stats --json | jq '.servers[] | {name, failed: .calls.failed}'
  watch sallyport stats`
}

// stats is what the command prints.
type stats struct {
	Processes []counting `json:"processes"`
	*metrics.Report
}

// counting is a process that counts.
type counting struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Run implements the command.
func (c *statsCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	s := statsOf(u)
	if c.JSON {
		return u.printJSON(s)
	}
	if len(s.Processes) == 0 {
		fmt.Fprintln(u.stdio.Out, "No Sallyport runs. Clients start it with 'sallyport serve'.")
		return nil
	}
	var since []string
	for _, p := range s.Processes {
		since = append(since, fmt.Sprintf("%d (since %s)", p.PID, ago(p.Started)))
	}
	fmt.Fprintf(u.stdio.Out, "Processes: %s\n", strings.Join(since, ", "))
	fmt.Fprintf(u.stdio.Out, "Executions: %d run code now, %d wait for their turn; ended: %s\n\n", s.Running, s.Waiting, cmp.Or(tally(s.Status), "none"))
	if err := s.printTimes(u); err != nil {
		return err
	}
	if len(s.Servers) > 0 {
		fmt.Fprintln(u.stdio.Out)
		if err := s.printServers(u); err != nil {
			return err
		}
	}
	fmt.Fprintln(u.stdio.Out)
	if s.TokensSaved > 0 {
		fmt.Fprintf(u.stdio.Out, "Tokens saved, about: %d (results that code read, less what it printed)\n", s.TokensSaved)
	}
	for _, line := range []struct {
		what string
		of   map[string]int
	}{{"Questions", s.Questions}, {"Results used again", s.Reused}, {"Sandboxes gone", s.Ended}, {"Not allowed", s.Denied}, {"Events lost", s.Lost}} {
		if text := tally(line.of); text != "" {
			fmt.Fprintf(u.stdio.Out, "%s: %s\n", line.what, text)
		}
	}
	return nil
}

// statsOf asks the processes.
func statsOf(u *ui) stats {
	all, problems := u.Stats(u.ctx)
	for _, p := range problems {
		fmt.Fprintln(u.stdio.Err, "sallyport:", p)
	}
	s := stats{Processes: []counting{}}
	var snapshots []metrics.Snapshot
	for _, one := range all {
		s.Processes = append(s.Processes, counting{one.PID, one.Started})
		snapshots = append(snapshots, one.Metrics)
	}
	s.Report = metrics.ReportOf(snapshots...)
	return s
}

func (s *stats) printTimes(u *ui) error {
	t := u.table("", "NUMBER", "FAILED", "P50", "P95", "P99")
	row := func(name string, of metrics.Times) {
		if of.Count > 0 {
			t.Row(name, strconv.Itoa(of.Count), strconv.Itoa(of.Failed), took(of.P50), took(of.P95), took(of.P99))
		}
	}
	row("executions", s.Executions)
	row("  until they ran", s.Waited)
	row("calls to servers", s.Calls)
	for _, cause := range slices.Sorted(maps.Keys(s.Starts)) {
		row("starts, "+printable(cause), s.Starts[cause])
	}
	row("resumes", s.Resumes)
	row("suspensions", s.Suspends)
	return t.Write(u.stdio.Out)
}

func (s *stats) printServers(u *ui) error {
	t := u.table("SERVER", "CALLS", "FAILED", "P50", "P95", "P99", "STARTED", "FAILURES")
	for _, one := range s.Servers {
		failures := maps.Clone(one.Failures)
		for _, change := range []string{"failed", "died"} {
			if n := one.Changes[change]; n > 0 {
				if failures == nil {
					failures = map[string]int{}
				}
				failures[map[string]string{"failed": "failed to start", "died": "ended by itself"}[change]] = n
			}
		}
		t.Row(printable(one.Name), strconv.Itoa(one.Calls.Count), strconv.Itoa(one.Calls.Failed), took(one.Calls.P50), took(one.Calls.P95), took(one.Calls.P99),
			strconv.Itoa(one.Changes["started"]), tally(failures))
	}
	return t.Write(u.stdio.Out)
}

// took is a number of seconds for people.
func took(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// tally lists numbers by what they count, the largest first.
func tally(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], cmp.Compare(a, b)) })
	var parts []string
	for _, name := range names {
		if of[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of[name], invisible.Line(strings.ReplaceAll(name, "_", " "))))
		}
	}
	return strings.Join(parts, ", ")
}
