// Package ledger keeps what runs have used, on disk: a file of lines for each
// day, to which any number of processes append. A line is one run, or several
// short ones of a kind that ended at about the same time, or what a session's
// sandbox used while nothing ran in it.
//
// A batch of lines is written under a lock, whole or not at all. Whatever dies
// when, other lines are not harmed: a torn one is skipped by readers and closed
// off by the next writer. Files of old days are made shorter in place, by the
// same rename that replaces any file of the state directory.
package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"sallyport/internal/state"
)

// Kinds of entries.
const (
	Run    = "run"
	Rest   = "rest"   // of a session's sandbox, between runs
	Server = "server" // of an MCP server's own processes on this machine
)

// Entry is one line. A nil number is unknown.
type Entry struct {
	ID      string    `json:"id,omitempty"` // of the run, or of the first of several
	Time    time.Time `json:"time"`         // when it began
	Kind    string    `json:"kind"`
	Runs    int       `json:"runs,omitempty"` // of a run: how many, at least 1
	Failed  int       `json:"failed,omitempty"`
	Session string    `json:"session,omitempty"`
	Backend string    `json:"backend,omitempty"`
	Servers []string  `json:"servers,omitempty"`
	File    string    `json:"file,omitempty"`
	Code    string    `json:"code,omitempty"` // a digest

	Wall     float64  `json:"wallSeconds"`
	CPU      *float64 `json:"cpuSeconds,omitempty"`
	Bytes    *float64 `json:"byteSeconds,omitempty"`
	CPUModel string   `json:"cpuModel,omitempty"`
	GPUModel string   `json:"gpuModel,omitempty"`
	GPUs     int      `json:"gpus,omitempty"`

	// Joules leaves out what is Missing; High is nil where something is.
	Method       string   `json:"method,omitempty"`
	Joules       *float64 `json:"joules"`
	Low          *float64 `json:"low"`
	High         *float64 `json:"high"`
	CPUJoules    *float64 `json:"cpuJoules,omitempty"`
	MemoryJoules *float64 `json:"memoryJoules,omitempty"`
	GPUJoules    *float64 `json:"gpuJoules,omitempty"` // nil and not Missing: there was no GPU
	Missing      []string `json:"missing,omitempty"`

	Grams     *float64 `json:"grams,omitempty"`
	GramsLow  *float64 `json:"gramsLow,omitempty"`
	GramsHigh *float64 `json:"gramsHigh,omitempty"`
	Country   string   `json:"country,omitempty"`
	Region    string   `json:"region,omitempty"`
	Intensity float64  `json:"gramsPerKWh,omitempty"`

	// Merged says that it stands for what was several lines.
	Merged bool `json:"merged,omitempty"`
}

const (
	suffix  = ".jsonl"
	lock    = "ledger"
	tidied  = "tidied" // when order was kept last
	day     = 24 * time.Hour
	maxLine = 1 << 20 // of what is read
)

// A Ledger is safe for concurrent use, also by several processes.
type Ledger struct{ dir state.Dir }

// At is the ledger in a directory.
func At(dir state.Dir) *Ledger { return &Ledger{dir} }

// Append writes entries. On error none was.
func (l *Ledger) Append(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	days, err := linesOf(entries)
	if err != nil {
		return err
	}
	unlock, err := l.dir.Lock(lock)
	if err != nil {
		return err
	}
	defer unlock()
	return l.write(days)
}

// write appends lines by the names of their files, all or none. The lock is
// held.
func (l *Ledger) write(days map[string]*bytes.Buffer) error {
	var undo []func()
	for name, lines := range days {
		back, err := appendTo(l.dir.Path(name), lines.Bytes())
		if err != nil {
			for _, u := range undo {
				u()
			}
			return err
		}
		undo = append(undo, back)
	}
	return nil
}

// linesOf are entries as lines, by the names of their files.
func linesOf(entries []Entry) (map[string]*bytes.Buffer, error) {
	days := map[string]*bytes.Buffer{}
	for i := range entries {
		line, err := json.Marshal(&entries[i])
		if err != nil {
			return nil, err
		}
		name := nameOf(entries[i].Time)
		if days[name] == nil {
			days[name] = &bytes.Buffer{}
		}
		days[name].Write(line)
		days[name].WriteByte('\n')
	}
	return days, nil
}

func nameOf(t time.Time) string { return t.UTC().Format(time.DateOnly) + suffix }

// appendTo writes whole lines at a file's end, or nothing, and returns what
// takes them back. The lock is held.
func appendTo(path string, lines []byte) (undo func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return nil, err
		}
		if last[0] != '\n' { // somebody died while writing it
			lines = append([]byte{'\n'}, lines...)
		}
	}
	if _, err := f.Write(lines); err != nil {
		return nil, errors.Join(err, f.Truncate(size))
	}
	return func() { _ = os.Truncate(path, size) }, nil
}

// Read calls visit with every entry that began at that time or later, the
// days in order, and then with what programs hold. It says how many lines could
// not be read.
func (l *Ledger) Read(since time.Time, visit func(*Entry)) (unread int, err error) {
	held, err := l.held() // before the days: what is booked meanwhile is found there
	if err != nil {
		return 0, err
	}
	names, err := l.dir.List()
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, e := range held {
			if !e.Time.Before(since) {
				visit(e)
			}
		}
	}()
	first := nameOf(since)
	for _, name := range names {
		if _, ok := dayOf(name); !ok || name < first {
			continue
		}
		bad, err := l.readDay(name, func(e *Entry) {
			delete(held, keyOf(e))
			if !e.Time.Before(since) {
				visit(e)
			}
		})
		unread += bad
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unread, err
		}
	}
	return unread, nil
}

func dayOf(name string) (time.Time, bool) {
	text, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.DateOnly, text)
	return t, err == nil
}

func (l *Ledger) readDay(name string, visit func(*Entry)) (unread int, err error) {
	f, err := l.dir.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		var e Entry
		if json.Unmarshal(s.Bytes(), &e) != nil || e.Time.IsZero() {
			unread++
			continue
		}
		visit(&e)
	}
	if err := s.Err(); err != nil {
		return unread, fmt.Errorf("%s: %w", l.dir.Path(name), err)
	}
	return unread, nil
}

// Tidy keeps order: days older than keep go, and of days older than detail a
// line is left for each kind of run. It does so once a day, whoever calls.
func (l *Ledger) Tidy(now time.Time, detail, keep time.Duration) error {
	today := now.UTC().Format(time.DateOnly)
	if last, err := l.dir.Read(tidied, 100); err == nil && string(last) >= today {
		return nil
	}
	names, err := l.dir.List()
	if err != nil || len(names) == 0 {
		return err
	}
	unlock, err := l.dir.Lock(lock)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	for _, name := range names {
		date, ok := dayOf(name)
		age := now.Sub(date.Add(day))
		switch {
		case !ok:
		case keep > 0 && age > keep:
			errs = append(errs, l.dir.Remove(name))
		case age > detail:
			errs = append(errs, l.shorten(name))
		}
	}
	return errors.Join(append(errs, l.dir.Write(tidied, []byte(today)))...)
}

// shorten merges the lines of a day. The lock is held.
func (l *Ledger) shorten(name string) error {
	var merged []Entry
	lines, more := 0, 10_000
	if _, err := l.readDay(name, func(e *Entry) {
		lines++
		if merged = append(merged, *e); len(merged) >= more { // a day may have more than memory holds
			merged = Merge(merged)
			more = 2*len(merged) + 10_000
		}
	}); err != nil {
		return err
	}
	merged = Merge(merged)
	if len(merged) == lines {
		return nil
	}
	var b bytes.Buffer
	for i := range merged {
		line, err := json.Marshal(&merged[i])
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	return l.dir.Write(name, b.Bytes())
}

// Merge adds up entries that differ only in when they were and how much they
// used. The order is that of the first of each.
func Merge(entries []Entry) []Entry {
	type sum struct{ *Entry }
	var out []*Entry
	byKey := map[string]sum{}
	for i := range entries {
		e := entries[i]
		key := strings.Join([]string{e.Kind, e.Session, e.Backend, strings.Join(e.Servers, ","), e.File, e.Code, e.CPUModel, e.GPUModel,
			fmt.Sprint(e.GPUs), e.Method, strings.Join(e.Missing, ","), e.Country, e.Region, fmt.Sprint(e.Grams == nil, e.CPU == nil, e.Bytes == nil, e.Joules == nil, e.Intensity)}, "\x00")
		s, ok := byKey[key]
		if !ok {
			byKey[key] = sum{&e}
			out = append(out, &e)
			continue
		}
		s.add(&e)
	}
	list := make([]Entry, len(out))
	for i, e := range out {
		list[i] = *e
	}
	return list
}

// add adds another entry of the same kind.
func (e *Entry) add(o *Entry) {
	e.Merged = true
	if o.Time.Before(e.Time) {
		e.Time, e.ID = o.Time, o.ID
	}
	e.Runs, e.Failed = e.Runs+o.Runs, e.Failed+o.Failed
	e.Wall += o.Wall
	for _, p := range []struct{ to, from **float64 }{
		{&e.CPU, &o.CPU}, {&e.Bytes, &o.Bytes}, {&e.Grams, &o.Grams}, {&e.GramsLow, &o.GramsLow}, {&e.GramsHigh, &o.GramsHigh},
		{&e.Joules, &o.Joules}, {&e.Low, &o.Low}, {&e.High, &o.High},
		{&e.CPUJoules, &o.CPUJoules}, {&e.MemoryJoules, &o.MemoryJoules}, {&e.GPUJoules, &o.GPUJoules},
	} {
		if *p.to != nil && *p.from != nil {
			both := **p.to + **p.from
			*p.to = &both
		}
	}
}

// lacks says whether a part of the energy is not known.
func (e *Entry) lacks(part string) bool {
	return slices.ContainsFunc(e.Missing, func(m string) bool { return m == part || strings.HasPrefix(m, part+" ") })
}

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

// Whole says whether the sum of that JSON key has no unknown part.
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
