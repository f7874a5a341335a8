package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/app"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

type carbonCmd struct {
	Report   carbonReportCmd   `cmd:"" default:"withargs" help:"Report the energy and emissions of past runs."`
	Estimate carbonEstimateCmd `cmd:"" help:"Estimate a program's energy and emissions here, on Kaggle and in each RunPod region."`
	Metrics  carbonMetricsCmd  `cmd:"" help:"Print totals in Prometheus format, under CodeCarbon's metric names."`
	Sync     carbonSyncCmd     `cmd:"" help:"Send pending emissions to the CodeCarbon dashboard."`
}

// sinceFlag is a time in the past: a duration back from now, or a date.
type sinceFlag struct{ time.Time }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *sinceFlag) UnmarshalText(text []byte) error {
	t, err := parseSince(string(text), time.Now())
	s.Time = t
	return err
}

func parseSince(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 100000 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: write how long ago (24h, 7d), or a date (2026-11-01)", text)
}

type carbonReportCmd struct {
	Since sinceFlag `help:"Start of the report: how long ago (24h, 7d), or a date (2026-11-01)." default:"30d" placeholder:"TIME"`
	By    string    `help:"Group by session, server, backend or day." enum:"session,server,backend,day" default:"session"`
	CSV   bool      `help:"Print CSV." name:"csv" xor:"form"`
	JSON  bool      `help:"Print JSON." name:"json" xor:"form"`
}

// Help implements kong's HelpProvider.
func (*carbonReportCmd) Help() string {
	return `The report covers the runs of all Sallyport processes. What a sandbox uses between runs is counted for its session. Each figure comes with the range in which the true value is expected. Emissions need a location: set carbon.location.

Example:
  sallyport carbon report --since 7d --by day
  sallyport carbon report --by server --json`
}

// Run implements the command.
func (c *carbonReportCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	book := u.Ledger()
	if book == nil {
		return store.ErrNoPlace
	}
	groups, total, unread, err := book.Report(c.Since.Time, ledger.By(c.By))
	if err != nil {
		return err
	}
	if unread > 0 {
		u.Log.Warn("cannot read some lines of the ledger", "lines", unread)
	}
	switch {
	case c.JSON:
		if groups == nil {
			groups = []ledger.Sum{}
		}
		return u.printJSON(struct {
			Since  time.Time    `json:"since"`
			By     string       `json:"by"`
			Groups []ledger.Sum `json:"groups"`
			Total  ledger.Sum   `json:"total"`
		}{c.Since.Time, c.By, groups, total})
	case c.CSV:
		return c.csv(u, groups)
	}
	if len(groups) == 0 {
		fmt.Fprintf(u.stdio.Out, "Nothing has run since %s.\n", c.Since.Local().Format("2006-01-02 15:04"))
		return nil
	}
	return c.table(u, groups, total)
}

func optional(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'g', -1, 64)
}

// sumOf formats a sum: as unknown if no part of it is known, and with a note if
// only a part is.
func sumOf(f *float64, whole bool, unit string) string {
	switch {
	case f == nil:
		return "unknown"
	case !whole:
		return withUnit(*f, unit) + " + unknown"
	}
	return withUnit(*f, unit)
}

func (c *carbonReportCmd) csv(u *ui, groups []ledger.Sum) error {
	w := csv.NewWriter(u.stdio.Out)
	plain := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	rows := [][]string{{c.By, "runs", "failed", "wall_seconds", "cpu_seconds", "joules", "joules_low", "joules_high",
		"cpu_joules", "memory_joules", "gpu_joules", "rest_joules", "grams_co2e", "grams_low", "grams_high", "unplaced_joules", "incomplete"}}
	for _, g := range groups {
		rows = append(rows, []string{g.Name, strconv.Itoa(g.Runs), strconv.Itoa(g.Failed), plain(g.Wall), optional(g.CPU), optional(g.Joules), optional(g.Low), optional(g.High),
			optional(g.CPUJoules), optional(g.MemoryJoules), optional(g.GPUJoules), optional(g.RestJoules), optional(g.Grams), optional(g.GramsLow), optional(g.GramsHigh), plain(g.Unplaced),
			strings.Join(g.Incomplete, " ")})
	}
	return w.WriteAll(rows)
}

// table prints groups with bars that show their energy.
func (c *carbonReportCmd) table(u *ui, groups []ledger.Sum, total ledger.Sum) error {
	value := func(f *float64) float64 {
		if f == nil {
			return 0
		}
		return *f
	}
	most := 0.0
	for _, g := range groups {
		most = max(most, value(g.Joules))
	}
	t := u.table(strings.ToUpper(c.By), "RUNS", "CPU", "ENERGY", "(RANGE)", "CO2E", "(RANGE)", "")
	for _, g := range append(groups, total) {
		bar := ""
		if g.Name != total.Name {
			bar = barOf(value(g.Joules), most)
		}
		cpu := "unknown"
		if g.CPU != nil {
			cpu = time.Duration(*g.CPU * float64(time.Second)).Round(time.Millisecond).String()
			if !g.Whole("cpuSeconds") {
				cpu += " + unknown"
			}
		}
		t.Row(printable(g.Name), strconv.Itoa(g.Runs), cpu,
			sumOf(g.Joules, g.Whole("joules"), "J"), between(g.Low, g.High, "J"), sumOf(g.Grams, g.Whole("grams"), "g"), between(g.GramsLow, g.GramsHigh, "g"), bar)
	}
	if !t.Fits() {
		t.Drop() // the bars
	}
	if err := t.Write(u.stdio.Out); err != nil {
		return err
	}
	if r := total.RestJoules; r == nil || *r > 0 || !total.Whole("restJoules") {
		fmt.Fprintf(u.stdio.Out, "\n%s of this was used between runs: starting sandboxes, background tasks, memory of variables.\n", sumOf(r, total.Whole("restJoules"), "J"))
	}
	if !total.Whole("joules") {
		fmt.Fprintln(u.stdio.Out, "Usage that could not be measured is shown as unknown and is not included in any figure.")
	}
	if total.Unplaced > 0 {
		fmt.Fprintf(u.stdio.Out, "The location of %s is unknown, so it has no emissions: set carbon.location (FRA, USA/california, …).\n", withUnit(total.Unplaced, "J"))
	}
	return nil
}

// barOf returns a bar of at most 30 characters.
func barOf(value, most float64) string {
	const width = 30
	if most <= 0 {
		return ""
	}
	eighths := int(math.Round(value / most * width * 8))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	if utf8.RuneCountInString(bar) == 0 && value > 0 {
		bar = "▏"
	}
	return bar
}

// withUnit formats a number with three significant digits and a decimal prefix.
func withUnit(f float64, unit string) string {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return "0 " + unit
	}
	prefixes := []string{"n", "µ", "m", "", "k", "M", "G", "T"}
	i := 3
	for math.Abs(f) >= 999.5 && i < len(prefixes)-1 {
		f, i = f/1000, i+1
	}
	for math.Abs(f) < 0.9995 && i > 0 {
		f, i = f*1000, i-1
	}
	digits := 2
	switch a := math.Abs(f); {
	case a >= 99.95:
		digits = 0
	case a >= 9.995:
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + " " + prefixes[i] + unit
}

// between formats a range. Without an upper bound, a part is unknown.
func between(low, high *float64, unit string) string {
	switch {
	case low == nil:
		return ""
	case high == nil:
		return "(" + withUnit(*low, unit) + " or more)"
	}
	return "(" + withUnit(*low, unit) + " – " + withUnit(*high, unit) + ")"
}

type carbonMetricsCmd struct{}

// Help implements kong's HelpProvider.
func (*carbonMetricsCmd) Help() string {
	return `Totals of all Sallyport processes, for a node exporter's textfile collector or a scrape through a script. Power is averaged over the time during which sandboxes existed.

Example:
  sallyport carbon metrics > /var/lib/node_exporter/sallyport.prom`
}

// Run implements the command.
func (*carbonMetricsCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	book := u.Ledger()
	if book == nil {
		return store.ErrNoPlace
	}
	e, err := u.Emissions()
	if err != nil {
		return err
	}
	groups, _, _, err := book.Report(time.Time{}, ledger.ByBackend)
	if err != nil {
		return err
	}
	project := e.CodeCarbon.Project
	if project == "" {
		project = "sallyport"
	}
	_, err = u.stdio.Out.Write([]byte(exposition(groups, project)))
	return err
}

// exposition returns groups in the text format of Prometheus.
func exposition(groups []ledger.Sum, project string) string {
	const kwh = 3.6e6
	type joules func(*ledger.Sum) (sum *float64, key string)
	// Without the unknown part, a power would be too small: leave it out.
	power := func(of joules) func(*ledger.Sum) (float64, bool) {
		return func(s *ledger.Sum) (float64, bool) {
			sum, key := of(s)
			if sum == nil || !s.Whole(key) {
				return 0, false
			}
			return *sum / (s.Wall + s.Rested), s.Wall > 0
		}
	}
	energy := func(of joules) func(*ledger.Sum) (float64, bool) {
		return func(s *ledger.Sum) (float64, bool) {
			sum, _ := of(s)
			if sum == nil {
				return 0, false
			}
			return *sum / kwh, true
		}
	}
	cpu := func(s *ledger.Sum) (*float64, string) { return s.CPUJoules, "cpuJoules" }
	gpu := func(s *ledger.Sum) (*float64, string) { return s.GPUJoules, "gpuJoules" }
	ram := func(s *ledger.Sum) (*float64, string) { return s.MemoryJoules, "memoryJoules" }
	all := func(s *ledger.Sum) (*float64, string) { return s.Joules, "joules" }
	kilograms := func(s *ledger.Sum) (float64, bool) {
		if s.Grams == nil {
			return 0, false
		}
		return *s.Grams / 1000, true
	}
	var b strings.Builder
	for _, m := range []struct {
		name, kind, help string
		of               func(*ledger.Sum) (float64, bool)
	}{
		{"codecarbon_duration", "gauge", "Duration of runs (s)", func(s *ledger.Sum) (float64, bool) { return s.Wall, true }},
		{"codecarbon_emissions", "gauge", "Emissions as CO2 equivalents (kg), of runs whose location is known", kilograms},
		{"codecarbon_emissions_rate", "gauge", "Emissions per second of sandbox lifetime (kg/s)", func(s *ledger.Sum) (float64, bool) {
			kg, ok := kilograms(s)
			return kg / (s.Wall + s.Rested), ok && s.Wall > 0 && s.Whole("grams")
		}},
		{"codecarbon_cpu_power", "gauge", "CPU power (W), mean", power(cpu)},
		{"codecarbon_gpu_power", "gauge", "GPU power (W), mean", power(gpu)},
		{"codecarbon_ram_power", "gauge", "RAM power (W), mean", power(ram)},
		{"codecarbon_cpu_energy", "gauge", "Energy used by the CPU (kWh)", energy(cpu)},
		{"codecarbon_gpu_energy", "gauge", "Energy used by the GPU (kWh)", energy(gpu)},
		{"codecarbon_ram_energy", "gauge", "Energy used by the RAM (kWh)", energy(ram)},
		{"codecarbon_energy_consumed", "gauge", "Sum of cpu_energy, gpu_energy and ram_energy (kWh)", energy(all)},
		{"codecarbon_energy_total", "counter", "Accumulated energy (kWh)", energy(all)},
		{"sallyport_runs_total", "counter", "Runs", func(s *ledger.Sum) (float64, bool) { return float64(s.Runs), true }},
		{"sallyport_runs_incomplete_total", "counter", "Runs with some unknown energy, which is in no sum", func(s *ledger.Sum) (float64, bool) { return float64(s.Unknown), true }},
		{"sallyport_energy_incomplete", "gauge", "1 if codecarbon_energy_total leaves out unknown energy", func(s *ledger.Sum) (float64, bool) {
			if s.Whole("joules") {
				return 0, true
			}
			return 1, true
		}},
	} {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		for i := range groups {
			if v, ok := m.of(&groups[i]); ok {
				fmt.Fprintf(&b, "%s{project_name=%s,backend=%s} %s\n", m.name, label(project), label(groups[i].Name), strconv.FormatFloat(v, 'g', -1, 64))
			}
		}
	}
	return b.String()
}

// label quotes a string as Prometheus does.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "?")) + `"`
}

type carbonSyncCmd struct {
	Timeout time.Duration `help:"How long to try (a number is seconds)." default:"60s" type:"seconds"`
	Resend  bool          `help:"Send emissions again that the dashboard may already have; they may be counted twice." xor:"doubt"`
	Drop    bool          `help:"Drop emissions that the dashboard may already have; they may be missing there." xor:"doubt"`
	JSON    bool          `help:"Print JSON." name:"json"`
}

// Help implements kong's HelpProvider.
func (*carbonSyncCmd) Help() string {
	return `Emissions wait in the state directory until the dashboard has accepted them; every 'sallyport serve' sends them in the background. This command sends them now and prints what is left.

If the answer to a request was lost, the dashboard is asked whether it has accepted the request. If it does not tell, as with a write-only token, nothing is sent twice: decide with --resend or --drop.

Example:
  sallyport carbon sync`
}

// Run implements the command.
func (c *carbonSyncCmd) Run(u *ui) error {
	if err := u.configure(); err != nil {
		return err
	}
	e, err := u.Emissions()
	if err != nil {
		return err
	}
	if e.Dashboard == nil {
		return fmt.Errorf("no dashboard is configured: %w", e.Lacking)
	}
	if c.Resend || c.Drop {
		if _, err := e.Dashboard.Decide(c.Resend); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(u.ctx, c.Timeout)
	defer cancel()
	left, sendErr := c.send(ctx, u, e)
	if c.JSON {
		if err := u.printJSON(left); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(u.stdio.Out, "%d runs in the outbox, %s waiting", left.Runs, withUnit(left.Waiting*3.6e6, "J"))
		if left.Doubtful > 0 {
			fmt.Fprintf(u.stdio.Out, ", %d emissions that the dashboard may or may not have accepted", left.Doubtful)
		}
		fmt.Fprintln(u.stdio.Out, ".")
		for _, t := range left.Troubles {
			fmt.Fprintf(u.stdio.Err, "sallyport: %s\n", printable(t))
		}
	}
	if u.ctx.Err() != nil {
		return u.interrupted()
	}
	if left.Waiting > 0 && sendErr != nil {
		return fmt.Errorf("not everything was accepted: %w", sendErr)
	}
	return nil
}

// send tries until nothing that can be sent is left, or the time is up.
func (*carbonSyncCmd) send(ctx context.Context, u *ui, e *app.Emissions) (left outboxStatus, err error) {
	for {
		err = e.Dashboard.Send(ctx, true)
		status, statusErr := e.Dashboard.Status()
		if statusErr != nil {
			return status, statusErr
		}
		if err == nil || ctx.Err() != nil || codecarbon.Hopeless(err) {
			return status, err
		}
		u.Log.Debug("the dashboard", "error", err)
		select {
		case <-ctx.Done():
			return status, errors.Join(err, ctx.Err())
		case <-time.After(2 * time.Second):
		}
	}
}
