package accounting

import (
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

// line is an entry with what only others' formats want.
type line struct {
	ledger.Entry
	footprint carbon.Footprint
	profile   carbon.Profile
	stream    string // of the dashboard
	once      bool   // the stream ends with it
}

func strip(lines []line) []ledger.Entry {
	var entries []ledger.Entry
	for i := range lines {
		entries = append(entries, lines[i].Entry)
	}
	return entries
}

// entries are the lines of a batch: short runs of a kind share one.
func (b *Books) entries(executions []*journal.Used, rests []rest) []line {
	var lines []line
	type group struct {
		first *journal.Used
		spent usage.Usage
		runs  int
		fails int
	}
	var groups []*group
	byKey := map[string]*group{}
	for _, e := range executions {
		failed := 0
		if e.Failed {
			failed = 1
		}
		if e.Usage.Wall < short {
			unknown := ""
			if e.Usage.CPU < 0 {
				unknown = "?"
			}
			key := strings.Join([]string{e.Session, strings.Join(e.Servers, ","), e.File, unknown}, "\x00")
			if e.File != "" {
				key += digest(e.Code)
			}
			if g := byKey[key]; g != nil {
				g.runs, g.fails = g.runs+1, g.fails+failed
				g.spent = sum(g.spent, e.Usage)
				continue
			}
			g := &group{first: e, spent: e.Usage, runs: 1, fails: failed}
			byKey[key] = g
			groups = append(groups, g)
			continue
		}
		groups = append(groups, &group{first: e, spent: e.Usage, runs: 1, fails: failed})
	}
	for _, g := range groups {
		lines = append(lines, b.runLine(g.first, g.spent, g.runs, g.fails))
	}
	type name struct{ kind, name string }
	restOf := map[name]usage.Usage{}
	var order []name
	for _, r := range rests {
		if r.spent.Wall >= short { // it may have been held
			lines = append(lines, b.line(r.kind, r.name, r.spent))
			continue
		}
		n := name{r.kind, r.name}
		if _, ok := restOf[n]; !ok {
			order = append(order, n)
			restOf[n] = r.spent
			continue
		}
		restOf[n] = sum(restOf[n], r.spent)
	}
	for _, n := range order {
		lines = append(lines, b.line(n.kind, n.name, restOf[n]))
	}
	return lines
}

// runLine is an execution, or several like it.
func (b *Books) runLine(e *journal.Used, spent usage.Usage, runs, fails int) line {
	l := b.line(ledger.Run, e.Session, spent)
	l.ID, l.Runs, l.Failed, l.Servers, l.File = e.Execution, runs, fails, e.Servers, e.File
	if runs == 1 || e.File != "" {
		l.Code = digest(e.Code)
	}
	l.Merged = runs > 1
	return l
}

// lineOf is an entry that another program held.
func (b *Books) lineOf(e ledger.Entry) line {
	l := line{Entry: e, profile: b.profile(), stream: e.Session}
	for _, part := range []struct {
		joules *float64
		to     **carbon.Figure
	}{{e.CPUJoules, &l.footprint.Energy.CPU}, {e.MemoryJoules, &l.footprint.Energy.Memory}, {e.GPUJoules, &l.footprint.Energy.GPU}} {
		if part.joules != nil {
			*part.to = &carbon.Figure{Joules: *part.joules}
		}
	}
	if e.Grams != nil {
		l.footprint.Emissions = &carbon.Emissions{Grams: *e.Grams, Grid: carbon.Grid{Country: e.Country, Region: e.Region, GramsPerKWh: e.Intensity}}
	}
	if e.Session == "" || e.Session == session.DefaultName { // its run on the dashboard was the killed program's
		l.stream, l.once = "killed "+e.Session+" "+e.Time.Format(time.RFC3339Nano), true
	}
	return l
}

// sum adds up two stretches of the same kind.
func sum(a, o usage.Usage) usage.Usage {
	if o.Began.Before(a.Began) {
		a.Began = o.Began
	}
	a.Wall += o.Wall
	if a.CPU >= 0 && o.CPU >= 0 {
		a.CPU += o.CPU
	} else {
		a.CPU = -1
	}
	if a.ByteSeconds >= 0 && o.ByteSeconds >= 0 {
		a.ByteSeconds += o.ByteSeconds
	} else {
		a.ByteSeconds = -1
	}
	a.PeakBytes = max(a.PeakBytes, o.PeakBytes)
	return a
}

// line is what was used here, by the session or the server of that name.
func (b *Books) line(kind, name string, s usage.Usage) line {
	p := b.profile()
	l := b.enter(b.config.Model.Footprint(b.usage(s), p, b.config.Places.Here()))
	l.profile = p
	l.Time, l.Kind, l.CPUModel = s.Began.UTC(), kind, p.CPUModel
	if kind == ledger.Server {
		l.Servers, name = []string{name}, ""
	} else {
		l.Session, l.Backend = name, b.config.Backend()
	}
	l.Wall = s.Wall.Seconds()
	if s.CPU >= 0 {
		cpu := s.CPU.Seconds()
		l.CPU = &cpu
	}
	if s.ByteSeconds >= 0 {
		bytes := s.ByteSeconds
		l.Bytes = &bytes
	}
	l.stream = name
	if name == "" || name == session.DefaultName {
		l.stream = session.DefaultName + " " + b.instance // it ends with this process
		b.streams[l.stream] = true
	}
	return l
}

// entryOf is a run on another engine.
func (b *Books) entryOf(r *runs.Record) line {
	out := r.Result
	l := b.enter(b.elsewhere(r))
	l.profile = carbon.Profile{CPUModel: out.CPUModel, PUE: b.config.Tables.PUE(r.Service)}
	l.ID, l.Kind, l.Runs, l.Session, l.Backend, l.File = r.ID, ledger.Run, 1, "", r.Service, r.Program
	l.Time = r.Began.UTC()
	if r.Began.IsZero() {
		l.Time = r.Created.UTC()
	}
	if l.Time.IsZero() {
		l.Time = time.Now().UTC()
	}
	if out.ExitCode != 0 || out.End != "" {
		l.Failed = 1
	}
	l.Wall = wallOf(r).Seconds()
	if out.CPUSeconds > 0 {
		cpu := duration(out.CPUSeconds).Seconds() // a number that no place measured would keep all others from the disk
		l.CPU = &cpu
	}
	l.CPUModel, l.GPUModel, l.GPUs = out.CPUModel, out.GPUModel, out.GPUs
	l.stream, l.once = r.Service+" "+r.ID, true
	b.streams[l.stream] = true
	return l
}

// enter puts a footprint into a line.
func (b *Books) enter(f carbon.Footprint) line {
	l := line{footprint: f}
	e := f.Energy
	l.Method, l.Joules, l.Low, l.High, l.Missing = f.Method, e.Joules, e.Low, e.High, e.Missing
	for _, part := range []struct {
		figure *carbon.Figure
		to     **float64
	}{{e.CPU, &l.CPUJoules}, {e.Memory, &l.MemoryJoules}, {e.GPU, &l.GPUJoules}} {
		if part.figure != nil {
			*part.to = &part.figure.Joules
		}
	}
	if m := f.Emissions; m != nil {
		l.Grams, l.GramsLow, l.GramsHigh = &m.Grams, &m.Low, m.High
		l.Country, l.Region, l.Intensity = m.Grid.Country, m.Grid.Region, m.Grid.GramsPerKWh
	}
	return l
}

// share gives lines to the CSV file and to the dashboard.
func (b *Books) share(lines []line) {
	if b.config.CSV != nil {
		var rows []codecarbon.Row
		for i := range lines {
			rows = append(rows, b.row(&lines[i]))
		}
		if err := b.config.CSV.Append(rows); err != nil {
			b.config.Log.Warn("emissions.csv could not be written (carbon.csv)", "error", err)
		}
	}
	if b.config.Dashboard == nil {
		return
	}
	for i := range lines {
		l := &lines[i]
		if l.Grams == nil {
			continue // its place or its energy is not known
		}
		if len(l.Missing) > 0 { // the dashboard takes numbers only, and would show what is missing as zero
			b.config.Log.Debug("not reported to the dashboard: a part of its energy is not known", "run", l.ID, "unknown", l.Missing)
			continue
		}
		err := b.config.Dashboard.Add(codecarbon.Stream{Key: l.stream, Run: b.runOf(l)}, deltaOf(l))
		if err == nil && l.once {
			err = b.config.Dashboard.End(l.stream)
		}
		if err != nil {
			b.config.Log.Warn("the dashboard's outbox could not be written", "error", err)
		}
	}
}

func known(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

func deltaOf(l *line) codecarbon.Delta {
	return codecarbon.Delta{
		Seconds: l.Wall, Kilograms: known(l.Grams) / 1000,
		CPU: known(l.CPUJoules) / carbon.JoulesPerKWh, GPU: known(l.GPUJoules) / carbon.JoulesPerKWh, RAM: known(l.MemoryJoules) / carbon.JoulesPerKWh,
		CPUSeconds: known(l.CPU), ByteSeconds: known(l.Bytes),
	}
}

// kWh is a figure's energy; negative where there is none.
func kWh(f *carbon.Figure) float64 {
	if f == nil {
		return -1
	}
	return f.Joules / carbon.JoulesPerKWh
}

const gibibyte = float64(1 << 30)

func (b *Books) runOf(l *line) codecarbon.RunCreate {
	r := codecarbon.RunCreate{
		OS: b.config.System, Version: b.config.Version, CPUs: l.profile.LogicalCPUs, CPUModel: l.CPUModel,
		GPUs: l.GPUs, GPUModel: l.GPUModel, RAM: float64(l.profile.MemoryBytes) / gibibyte, TrackingMode: "process",
	}
	if l.once {
		r.OS = l.Backend
	}
	if m := l.footprint.Emissions; m != nil && m.Grid.Cloud != "" {
		r.Provider, r.Region = &m.Grid.Cloud, &m.Grid.Region
	}
	return r
}

func (b *Books) row(l *line) codecarbon.Row {
	r := codecarbon.Row{
		Time: l.Time.Add(time.Duration(l.Wall * float64(time.Second))), Project: b.config.Project, RunID: uuid(), ExperimentID: b.config.Experiment,
		Seconds: l.Wall, Kilograms: -1, CPU: kWh(l.footprint.Energy.CPU), GPU: kWh(l.footprint.Energy.GPU), RAM: kWh(l.footprint.Energy.Memory),
		Partial: len(l.Missing) > 0,
		OS:      b.config.System, Version: b.config.Version, CPUs: l.profile.LogicalCPUs, CPUModel: l.CPUModel, GPUs: l.GPUs, GPUModel: l.GPUModel,
		RAMTotal: float64(l.profile.MemoryBytes) / gibibyte, CPUPercent: -1, RAMPercent: -1, RAMUsed: -1, PUE: l.profile.PUE.Factor,
	}
	if l.CPU != nil && l.Wall > 0 && l.profile.LogicalCPUs > 0 {
		r.CPUPercent = min(100, 100**l.CPU/l.Wall/float64(l.profile.LogicalCPUs))
	}
	if l.Bytes != nil && l.Wall > 0 {
		r.RAMUsed = *l.Bytes / l.Wall / gibibyte
		if r.RAMTotal > 0 {
			r.RAMPercent = min(100, 100*r.RAMUsed/r.RAMTotal)
		}
	}
	if l.footprint.Energy.GPU == nil && !slices.ContainsFunc(l.Missing, func(m string) bool { return strings.HasPrefix(m, "gpu") }) {
		r.GPU = 0 // there was none
	}
	if m := l.footprint.Emissions; m != nil {
		if !r.Partial {
			r.Kilograms = m.Grams / 1000
		}
		r.Country, r.CountryCode = m.Grid.CountryName, m.Grid.Country
		if m.Grid.Cloud != "" {
			r.CloudProvider, r.CloudRegion = m.Grid.Cloud, m.Grid.Region
		} else {
			r.Region = m.Grid.Region
		}
	}
	return r
}
