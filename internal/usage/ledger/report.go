package ledger

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// By is what a report is grouped by.
type By string

// The groups of a report.
const (
	BySession By = "session"
	ByServer  By = "server"
	ByBackend By = "backend"
	ByDay     By = "day"
)

// Sum is one group of a report. A sum of which no part is known is null, and
// one of which some part is not known is named in Incomplete, by its JSON key:
// it is then less than what was used. An upper bound with an unknown part is no
// bound, and null.
type Sum struct {
	Name   string   `json:"name"`
	Runs   int      `json:"runs"`
	Failed int      `json:"failed"`
	Wall   float64  `json:"wallSeconds"` // of runs
	Rested float64  `json:"restSeconds"` // of sandboxes between runs
	CPU    *float64 `json:"cpuSeconds"`
	Joules *float64 `json:"joules"`
	Low    *float64 `json:"low"`
	High   *float64 `json:"high"`

	CPUJoules    *float64 `json:"cpuJoules"`
	MemoryJoules *float64 `json:"memoryJoules"`
	GPUJoules    *float64 `json:"gpuJoules"`
	RestJoules   *float64 `json:"restJoules"` // of these: used between runs

	// Grams is null where no place is known; Unplaced is the energy of which
	// the place is not known.
	Grams     *float64 `json:"grams"`
	GramsLow  *float64 `json:"gramsLow"`
	GramsHigh *float64 `json:"gramsHigh"`
	Unplaced  float64  `json:"unplacedJoules"`
	Unknown   int      `json:"runsOfUnknownUsage"` // something of their energy is missing

	Incomplete []string `json:"incomplete,omitempty"`
}

// Whole reports whether the sum of that JSON key has no unknown part.
func (s *Sum) Whole(key string) bool { return !slices.Contains(s.Incomplete, key) }

// Groups of what has no name of its own.
const (
	None      = "(none)"      // no session, as runs elsewhere
	Servers   = "(servers)"   // MCP servers, in a report that is not about them
	Sandboxes = "(sandboxes)" // the code's, in a report by servers
)

// Report adds up entries by groups, those of most energy first, days in order.
// A server's group is what its own processes used. What a sandbox used while it
// could call servers is not divided among them: nothing measures that.
func (l *Ledger) Report(since time.Time, by By) (groups []Sum, total Sum, unread int, err error) {
	byName := map[string]*Sum{}
	total.Name = "total"
	unread, err = l.Read(since, func(e *Entry) {
		total.add(e)
		n := groupOf(e, by)
		if byName[n] == nil {
			byName[n] = &Sum{Name: n}
		}
		byName[n].add(e)
	})
	total.finish()
	for _, s := range byName {
		s.finish()
		groups = append(groups, *s)
	}
	slices.SortFunc(groups, func(a, b Sum) int {
		if by != ByDay {
			if c := cmp.Compare(known(b.Joules), known(a.Joules)); c != 0 {
				return c
			}
		}
		return strings.Compare(a.Name, b.Name)
	})
	return groups, total, unread, err
}

// groupOf is the name of an entry's group.
func groupOf(e *Entry, by By) string {
	name := e.Session
	switch {
	case by == ByDay:
		return e.Time.Local().Format(time.DateOnly)
	case by == ByServer && e.Kind != Server:
		return Sandboxes
	case by == ByServer:
		name = strings.Join(e.Servers, ", ")
	case e.Kind == Server:
		return Servers
	case by == ByBackend:
		name = e.Backend
	}
	if name == "" {
		return None
	}
	return name
}

func known(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// part is a sum of a group and what an entry adds to it; nil is unknown.
type part struct {
	key  string
	to   **float64
	from *float64
}

// add adds an entry.
func (s *Sum) add(e *Entry) {
	s.Runs, s.Failed = s.Runs+e.Runs, s.Failed+e.Failed
	if len(e.Missing) > 0 {
		s.Unknown += e.Runs
	}
	gpu := e.GPUJoules
	if gpu == nil && !e.lacks("gpu") {
		gpu = new(float64)
	}
	parts := []part{
		{"cpuSeconds", &s.CPU, e.CPU}, {"joules", &s.Joules, e.Joules}, {"low", &s.Low, e.Low}, {"high", &s.High, e.High},
		{"cpuJoules", &s.CPUJoules, e.CPUJoules}, {"memoryJoules", &s.MemoryJoules, e.MemoryJoules}, {"gpuJoules", &s.GPUJoules, gpu},
	}
	switch e.Kind {
	case Run:
		s.Wall += e.Wall
	case Rest:
		s.Rested += e.Wall
		parts = append(parts, part{"restJoules", &s.RestJoules, e.Joules})
	}
	if e.Grams != nil {
		parts = append(parts, part{"grams", &s.Grams, e.Grams}, part{"gramsLow", &s.GramsLow, e.GramsLow}, part{"gramsHigh", &s.GramsHigh, e.GramsHigh})
	} else {
		s.Unplaced += known(e.Joules)
	}
	for _, p := range parts {
		if p.from != nil {
			sum := known(*p.to) + *p.from
			*p.to = &sum
		} else {
			s.lacks(p.key)
		}
	}
	if len(e.Missing) > 0 {
		s.lacks("joules")
		if e.Kind == Rest {
			s.lacks("restJoules")
		}
		if e.lacks("gpu") {
			s.lacks("gpuJoules")
		}
	}
	if e.Grams == nil || len(e.Missing) > 0 {
		s.lacks("grams")
	}
}

func (s *Sum) lacks(key string) {
	if s.Whole(key) {
		s.Incomplete = append(s.Incomplete, key)
	}
}

// finish makes sums of nothing zero, and takes back bounds that are none.
func (s *Sum) finish() {
	for _, p := range []part{{"cpuSeconds", &s.CPU, nil}, {"joules", &s.Joules, nil}, {"low", &s.Low, nil}, {"cpuJoules", &s.CPUJoules, nil},
		{"memoryJoules", &s.MemoryJoules, nil}, {"gpuJoules", &s.GPUJoules, nil}, {"restJoules", &s.RestJoules, nil}, {"high", &s.High, nil}} {
		if *p.to == nil && s.Whole(p.key) {
			*p.to = new(float64)
		}
	}
	if !s.Whole("joules") {
		s.High = nil
	}
	if !s.Whole("grams") {
		s.GramsHigh = nil
	}
	s.Incomplete = slices.DeleteFunc(s.Incomplete, func(key string) bool { return key == "low" || key == "high" || key == "gramsLow" || key == "gramsHigh" })
	slices.Sort(s.Incomplete)
}
