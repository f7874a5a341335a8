package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func ptr(f float64) *float64 { return &f }

func entry(id string, at time.Time, joules float64) Entry {
	return Entry{ID: id, Time: at, Kind: Run, Runs: 1, Session: "s", Backend: "gvisor", Wall: 1, CPU: ptr(0.5), Joules: ptr(joules), Low: ptr(joules / 2), High: ptr(joules * 2),
		Method: "sallyport", Grams: ptr(joules / 1000), GramsLow: ptr(0), GramsHigh: ptr(joules)}
}

func all(t *testing.T, l *Ledger) []Entry {
	t.Helper()
	var list []Entry
	if _, err := l.Read(time.Time{}, func(e *Entry) { list = append(list, *e) }); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAppendAndRead(t *testing.T) {
	d := store.At(t.TempDir()).Sub("ledger")
	l := At(d)
	if got := all(t, l); got != nil {
		t.Errorf("an empty ledger has %v", got)
	}
	if err := l.Append([]Entry{entry("b", noon, 2), entry("a", noon.Add(-day), 1)}); err != nil {
		t.Fatal(err)
	}
	// Somebody dies in the middle of a line.
	f, err := os.OpenFile(d.Path("2026-11-21.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"id":"torn","time":"2026-11`)
	f.Close()
	if err := l.Append([]Entry{entry("c", noon, 3)}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	unread, err := l.Read(time.Time{}, func(e *Entry) { ids = append(ids, e.ID) })
	if err != nil || unread != 1 || strings.Join(ids, "") != "abc" {
		t.Errorf("%v, %d unread, %v", ids, unread, err)
	}
	ids = nil
	if _, err := l.Read(noon, func(e *Entry) { ids = append(ids, e.ID) }); err != nil || strings.Join(ids, "") != "bc" {
		t.Errorf("since noon: %v, %v", ids, err)
	}
	if err := At(store.At("")).Append([]Entry{entry("x", noon, 1)}); err == nil {
		t.Error("a ledger without a place took an entry")
	}
}

// TestAppendIsWholeOrNot: where one day's file cannot be written, nothing is.
func TestAppendIsWholeOrNot(t *testing.T) {
	d := store.At(t.TempDir())
	l := At(d)
	if err := l.Append([]Entry{entry("a", noon, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.Path("2026-11-20.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 20 { // the order of days is by chance
		if err := l.Append([]Entry{entry("b", noon, 2), entry("c", noon.Add(-day), 3)}); err == nil {
			t.Fatal("written")
		}
	}
	if err := os.Remove(d.Path("2026-11-20.jsonl")); err != nil {
		t.Fatal(err)
	}
	if got := all(t, l); len(got) != 1 || got[0].ID != "a" {
		t.Errorf("%+v", got)
	}
}

// TestManyProcesses: several processes append at the same time, some are
// killed, and no line of the others is harmed or there twice.
func TestManyProcesses(t *testing.T) {
	const variable = "SALLYPORT_TEST_LEDGER"
	if dir := os.Getenv(variable); dir != "" {
		l := At(store.At(dir))
		for i := range 100 {
			if err := l.Append([]Entry{entry(fmt.Sprint(os.Getpid(), "-", i), noon, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		for os.Getenv(variable+"_STAY") != "" {
			if err := l.Append([]Entry{{ID: "killed", Time: noon, Kind: Rest}}); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	dir := t.TempDir()
	start := func(more ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestManyProcesses$")
		cmd.Env = append(append(os.Environ(), variable+"="+dir), more...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	doomed := start(variable + "_STAY=1")
	var others []*exec.Cmd
	for range 3 {
		others = append(others, start())
	}
	var mine sync.WaitGroup
	l := At(store.At(dir))
	for g := range 2 {
		mine.Go(func() {
			for i := range 50 {
				if err := l.Append([]Entry{entry(fmt.Sprint("me", g, "-", i), noon, 1)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	mine.Wait()
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	_ = doomed.Process.Kill()
	_ = doomed.Wait()
	seen := map[string]int{}
	for _, e := range all(t, l) {
		if e.Kind == Run && !strings.HasPrefix(e.ID, fmt.Sprint(doomed.Process.Pid, "-")) {
			seen[e.ID]++
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d entries, want 400", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
}

func TestTidy(t *testing.T) {
	d := store.At(t.TempDir())
	l := At(d)
	var entries []Entry
	for _, age := range []int{0, 40, 500} {
		for i := range 10 {
			e := entry(fmt.Sprint(age, "-", i), noon.Add(-time.Duration(age)*day).Add(time.Duration(i)*time.Minute), 1)
			if i == 9 {
				e.Grams, e.GramsLow, e.GramsHigh, e.Country = nil, nil, nil, ""
			}
			entries = append(entries, e)
		}
	}
	if err := l.Append(entries); err != nil {
		t.Fatal(err)
	}
	before, total, _, err := l.Report(noon.Add(-100*day), BySession)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Tidy(noon, 30*day, 400*day); err != nil {
		t.Fatal(err)
	}
	if got := all(t, l); len(got) != 12 {
		t.Errorf("%d lines are left: %+v", len(got), got)
	}
	after, totalAfter, _, err := l.Report(noon.Add(-100*day), BySession)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(before[0].Runs, before[0].Unplaced) != fmt.Sprint(after[0].Runs, after[0].Unplaced) ||
		math.Abs(*total.Joules-*totalAfter.Joules) > 1e-9 || math.Abs(*total.Grams-*totalAfter.Grams) > 1e-9 || totalAfter.Runs != 20 {
		t.Errorf("before %+v, after %+v", total, totalAfter)
	}
	// Once a day.
	if err := l.Append([]Entry{entry("late", noon.Add(-500*day), 1)}); err != nil {
		t.Fatal(err)
	}
	if err := l.Tidy(noon.Add(time.Hour), 30*day, 400*day); err != nil || len(all(t, l)) != 13 {
		t.Errorf("%v, %d lines", err, len(all(t, l)))
	}
	if err := l.Tidy(noon.Add(day), 30*day, 400*day); err != nil || len(all(t, l)) != 12 {
		t.Errorf("%v, %d lines", err, len(all(t, l)))
	}
}

func TestReport(t *testing.T) {
	l := At(store.At(t.TempDir()))
	both := entry("a", noon, 10)
	both.Servers = []string{"x", "y"}
	x := entry("b", noon.Add(-day), 4)
	x.Servers, x.Session, x.Failed = []string{"x"}, "other", 1
	rest := Entry{Time: noon, Kind: Rest, Session: "s", Backend: "gvisor", Joules: ptr(2), Low: ptr(1), High: ptr(4), Wall: 50, CPU: ptr(1)}
	far := entry("c", noon, 100)
	far.Backend, far.Grams, far.Missing = "runpod", nil, []string{"gpu"}
	if err := l.Append([]Entry{both, x, rest, far}); err != nil {
		t.Fatal(err)
	}
	for by, want := range map[By]string{
		BySession: "s:112:2 other:4:1",
		ByServer:  "(sandboxes):116:3",
		ByBackend: "runpod:100:1 gvisor:16:2",
		ByDay:     "2026-11-20:4:1 2026-11-21:112:2",
	} {
		groups, total, _, err := l.Report(time.Time{}, by)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range groups {
			got = append(got, fmt.Sprintf("%s:%g:%d", g.Name, *g.Joules, g.Runs))
		}
		if by == ByDay && time.Local != time.UTC {
			continue // the day of an entry is the reader's
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %s: %s, want %s", by, strings.Join(got, " "), want)
		}
		if *total.Joules != 116 || total.Runs != 3 || total.Failed != 1 || total.Wall != 3 || *total.RestJoules != 2 || total.Unplaced != 102 || total.Unknown != 1 ||
			*total.CPU != 2.5 || math.Abs(*total.Grams-0.014) > 1e-12 {
			t.Errorf("total %+v", total)
		}
	}
}

// TestUnknownInReport: what is not known is in no sum, and every sum says so.
func TestUnknownInReport(t *testing.T) {
	l := At(store.At(t.TempDir()))
	lost := Entry{ID: "lost", Time: noon, Kind: Run, Runs: 1, Session: "lost", Backend: "runpod", Missing: []string{"gpu Voodoo 2", "cpu", "memory"}}
	half := entry("half", noon, 10)
	half.Session, half.Missing, half.High, half.GramsHigh, half.CPUJoules = "half", []string{"memory"}, nil, nil, ptr(10)
	whole := entry("whole", noon, 5)
	whole.Session, whole.CPUJoules, whole.MemoryJoules = "whole", ptr(4), ptr(1)
	if err := l.Append([]Entry{lost, half, whole}); err != nil {
		t.Fatal(err)
	}
	groups, total, _, err := l.Report(time.Time{}, BySession)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		`"name":"half","runs":1,"failed":0,"wallSeconds":1,"restSeconds":0,"cpuSeconds":0.5,"joules":10,"low":5,"high":null,"cpuJoules":10,"memoryJoules":null,"gpuJoules":0,"restJoules":0,"grams":0.01,"gramsLow":0,"gramsHigh":null,"unplacedJoules":0,"runsOfUnknownUsage":1,"incomplete":["grams","joules","memoryJoules"]}`,
		`"name":"whole","runs":1,"failed":0,"wallSeconds":1,"restSeconds":0,"cpuSeconds":0.5,"joules":5,"low":2.5,"high":10,"cpuJoules":4,"memoryJoules":1,"gpuJoules":0,"restJoules":0,"grams":0.005,"gramsLow":0,"gramsHigh":5,"unplacedJoules":0,"runsOfUnknownUsage":0}`,
		`"name":"lost","runs":1,"failed":0,"wallSeconds":0,"restSeconds":0,"cpuSeconds":null,"joules":null,"low":null,"high":null,"cpuJoules":null,"memoryJoules":null,"gpuJoules":null,"restJoules":0,"grams":null,"gramsLow":null,"gramsHigh":null,"unplacedJoules":0,"runsOfUnknownUsage":1,"incomplete":["cpuJoules","cpuSeconds","gpuJoules","grams","joules","memoryJoules"]}`,
	} {
		if got, _ := json.Marshal(groups[i]); string(got) != "{"+want {
			t.Errorf("got\n%s, want\n{%s", got, want)
		}
	}
	if *total.Joules != 15 || total.High != nil || total.Unknown != 2 || total.Whole("joules") || total.Whole("cpuSeconds") || *total.Grams != 0.015 || total.Whole("grams") || !total.Whole("restJoules") {
		t.Errorf("total %+v", total)
	}
	// Lines of old days are merged, and still say it.
	if err := l.Tidy(noon.Add(100*day), day, 0); err != nil {
		t.Fatal(err)
	}
	if _, after, _, err := l.Report(time.Time{}, BySession); err != nil || fmt.Sprint(after.Incomplete) != fmt.Sprint(total.Incomplete) || *after.Joules != 15 {
		t.Errorf("merged: %+v, %v; want %+v", after, err, total)
	}
}

// TestReportByServer: a server's figure is that of its own processes, whoever
// could have called it.
func TestReportByServer(t *testing.T) {
	l := At(store.At(t.TempDir()))
	run := entry("a", noon, 10)
	run.Servers = []string{"busy", "unused"}
	busy := Entry{Time: noon, Kind: Server, Servers: []string{"busy"}, Wall: 5, CPU: ptr(5), Joules: ptr(20), Low: ptr(10), High: ptr(40)}
	if err := l.Append([]Entry{run, busy}); err != nil {
		t.Fatal(err)
	}
	for by, want := range map[By]string{ByServer: "busy:20:0 (sandboxes):10:1", BySession: "(servers):20:0 s:10:1", ByBackend: "(servers):20:0 gvisor:10:1"} {
		groups, total, _, err := l.Report(time.Time{}, by)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, g := range groups {
			got = append(got, fmt.Sprintf("%s:%g:%d", g.Name, *g.Joules, g.Runs))
		}
		if strings.Join(got, " ") != want || *total.Joules != 30 || total.Wall != 1 || total.Rested != 0 {
			t.Errorf("by %s: got %s, want %s; total %+v", by, strings.Join(got, " "), want, total)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add(`{"id":"a","time":"2026-11-21T12:00:00Z","kind":"run","runs":1,"wallSeconds":1,"joules":2,"low":1,"high":3}`)
	f.Add(`{"time":"2026-11-21T12:00:00Z","grams":1e308,"cpuSeconds":null,"servers":[""]}`)
	f.Add(`{"time":"x"`)
	f.Fuzz(func(t *testing.T, line string) {
		d := store.At(t.TempDir())
		if err := os.WriteFile(d.Path("2026-11-21.jsonl"), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, by := range []By{BySession, ByServer, ByBackend, ByDay} {
			if _, _, _, err := At(d).Report(time.Time{}, by); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLargeDay: whatever a day's file holds is read, and kept when it is made
// shorter.
func TestLargeDay(t *testing.T) {
	d := store.At(t.TempDir())
	l := At(d)
	if err := l.Append([]Entry{entry("first", noon, 1)}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.Path(nameOf(noon)), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	blank := append(bytes.Repeat([]byte{' '}, maxLine-2), '\n')
	for range 257 {
		if _, err := f.Write(blank); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	last := entry("last", noon.Add(time.Hour), 1)
	last.Session = "another"
	if err := l.Append([]Entry{last, last}); err != nil {
		t.Fatal(err)
	}
	if got := all(t, l); len(got) != 3 {
		t.Errorf("got %d entries, want 3", len(got))
	}
	if err := l.Tidy(noon.Add(40*day), 30*day, 0); err != nil {
		t.Fatal(err)
	}
	if got := all(t, l); len(got) != 2 || got[1].Runs != 2 {
		t.Errorf("after tidying: got %+v, want the first entry, and one of the last two", got)
	}
}
