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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/store"
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
type Ledger struct{ dir store.Dir }

// At returns the ledger in a directory.
func At(dir store.Dir) *Ledger { return &Ledger{dir} }

// Append writes entries: all of them, or none on error.
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
		if last[0] != '\n' { // a process died while writing it
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

// lacks reports whether a part of the energy is not known.
func (e *Entry) lacks(part string) bool {
	return slices.ContainsFunc(e.Missing, func(m string) bool { return m == part || strings.HasPrefix(m, part+" ") })
}
