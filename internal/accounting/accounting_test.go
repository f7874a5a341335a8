package accounting

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon/codecarbontest"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// office is a place to keep books in.
type office struct {
	t     *testing.T
	state store.Dir
	csv   string
	api   *codecarbontest.API
	url   string
	log   bytes.Buffer
}

func newOffice(t *testing.T) *office {
	o := &office{t: t, state: store.At(t.TempDir()), api: &codecarbontest.API{}, csv: filepath.Join(t.TempDir(), "emissions.csv")}
	server := httptest.NewServer(o.api)
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

const experiment = "8edb03e1-1111-4222-8333-444455556666"

// books are those of one process; change may be nil.
func (o *office) books(change func(*Config)) *Books {
	o.t.Helper()
	tables, err := carbon.Load()
	if err != nil {
		o.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&o.log, nil))
	outbox, err := codecarbon.NewOutbox(codecarbon.Options{Dir: o.state.Sub("outbox"), Log: log,
		Config: codecarbon.Config{Token: codecarbon.NewSecret("tok"), ExperimentID: experiment, Endpoint: o.url}})
	if err != nil {
		o.t.Fatal(err)
	}
	config := Config{
		Ledger: ledger.At(o.state.Sub("ledger")), Model: carbon.New(tables, ""), Tables: tables,
		Profile:   func() carbon.Profile { return carbon.Profile{CPUModel: "none", LogicalCPUs: 2, MemoryBytes: 16 << 30} },
		Places:    &Places{Tables: tables, Declared: &carbon.Location{Country: "FRA"}, Kaggle: &carbon.Location{Cloud: "gcp", Region: "us-central1"}, Intensity: -1, Log: log},
		Backend:   func() string { return "gvisor" },
		CSV:       codecarbon.OpenFile(o.csv),
		Dashboard: outbox, Claims: o.state.Sub("claims"),
		Project: "sallyport", Experiment: experiment, System: "Linux", Version: "sallyport test", Log: log,
	}
	if change != nil {
		change(&config)
	}
	return Open(config)
}

func (o *office) entries() []ledger.Entry {
	o.t.Helper()
	var list []ledger.Entry
	if _, err := ledger.At(o.state.Sub("ledger")).Read(time.Time{}, func(e *ledger.Entry) { list = append(list, *e) }); err != nil {
		o.t.Fatal(err)
	}
	return list
}

func (o *office) rows() []map[string]string {
	o.t.Helper()
	raw, err := os.ReadFile(o.csv)
	if err != nil {
		o.t.Fatal(err)
	}
	records, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err != nil {
		o.t.Fatal(err)
	}
	var rows []map[string]string
	for _, r := range records[1:] {
		m := map[string]string{}
		for i, h := range records[0] {
			m[h] = r[i]
		}
		rows = append(rows, m)
	}
	return rows
}

func execution(id, name string, wall, cpu time.Duration) *journal.Used {
	return &journal.Used{Origin: journal.Origin{Execution: id, Session: name}, Code: "print(1)",
		Usage: usage.Usage{Began: noon, Wall: wall, CPU: cpu, ByteSeconds: 1e9 * wall.Seconds(), PeakBytes: 1e9}}
}

// tell has the journal's events handled.
func tell(b *Books, events ...journal.Event) { _ = b.Handle(events, 0) }

// rested is what the sandbox of a session used in between.
func rested(session string, u usage.Usage) *journal.Used {
	return &journal.Used{Kind: journal.BySession, Name: session, Usage: u}
}

// TestBooks: what was used is in the ledger, in the file and on the dashboard,
// and they agree.
func TestBooks(t *testing.T) {
	o := newOffice(t)
	b := o.books(nil)
	long := execution("long", session.DefaultName, 10*time.Second, 8*time.Second)
	long.Servers, long.Failed, long.File = []string{"math"}, true, "x.py"
	tell(b, long)
	for i := range 1000 {
		tell(b, execution(fmt.Sprint("short-", i), session.DefaultName, time.Millisecond/2, time.Millisecond/2))
	}
	unknown := execution("unknown", session.DefaultName, time.Millisecond, -1)
	unknown.Usage.ByteSeconds = -1
	tell(b, unknown)
	tell(b, execution("named", "work", 2*time.Second, time.Second))
	tell(b, rested("work", usage.Usage{Began: noon, Wall: time.Minute, CPU: time.Second, ByteSeconds: 6e10}))
	tell(b, rested("work", usage.Usage{Began: noon.Add(time.Minute), Wall: time.Minute, CPU: time.Second, ByteSeconds: 6e10}))
	b.Close()
	b.Close()

	byID := map[string]ledger.Entry{}
	count, joules, grams := 0, 0.0, 0.0
	for _, e := range o.entries() {
		if before, ok := byID[e.ID+e.Kind]; ok && e.Kind == ledger.Rest {
			both := ledger.Merge([]ledger.Entry{before, e})
			byID[e.ID+e.Kind] = both[0]
		} else {
			byID[e.ID+e.Kind] = e
		}
		count += e.Runs
		if len(e.Missing) == 0 {
			joules += *e.Joules
			grams += *e.Grams
		}
		if e.Country != "FRA" || e.Intensity != 56.039 || e.Backend != "gvisor" || e.Method != carbon.MethodOwn || (e.High == nil) != (len(e.Missing) > 0) {
			t.Errorf("%+v", e)
		}
	}
	if count != 1003 || len(byID) != 5 {
		t.Errorf("%d runs in %d lines", count, len(byID))
	}
	// 4 W for each processor's second, 0.375 W for each gigabyte's.
	if e := byID["longrun"]; math.Abs(*e.Joules-(32+3.75)) > 1e-9 || e.Failed != 1 || e.Servers[0] != "math" || e.File != "x.py" || e.Code != Digest("print(1)") || e.Runs != 1 {
		t.Errorf("%+v", e)
	}
	if e := byID["short-0run"]; e.Runs != 1000 || math.Abs(*e.CPUJoules-2) > 1e-9 || math.Abs(e.Wall-0.5) > 1e-9 || !e.Merged {
		t.Errorf("%+v", e)
	}
	if e := byID["unknownrun"]; e.CPU != nil || e.Bytes != nil || len(e.Missing) != 1 || *e.CPUJoules == 0 {
		t.Errorf("%+v", e)
	}
	if e := byID["rest"]; math.Abs(*e.Joules-(8+45)) > 1e-9 || e.Runs != 0 || e.Session != "work" || e.Wall != 120 {
		t.Errorf("%+v", e)
	}

	sum, unknowns := 0.0, 0
	rows := o.rows()
	for _, r := range rows {
		var kwh float64
		if r["ram_energy"] == "" { // what is not known is in no sum
			if r["energy_consumed"] != "" || r["emissions"] != "" || r["cpu_energy"] == "" {
				t.Errorf("a run of unknown memory: %v", r)
			}
			unknowns++
			continue
		}
		if _, err := fmt.Sscan(r["energy_consumed"], &kwh); err != nil || r["country_iso_code"] != "FRA" || r["codecarbon_version"] != "sallyport test" {
			t.Errorf("%v", r)
		}
		sum += kwh
	}
	if len(rows) != 6 || unknowns != 1 || math.Abs(sum*carbon.JoulesPerKWh-joules) > 1e-6 {
		t.Errorf("%d rows with %v J, want %v", len(rows), sum*carbon.JoulesPerKWh, joules)
	}

	// The process's own session is a run that has ended; the named one is sent
	// when it is due or over.
	if n := len(o.api.Runs()); n < 1 || n > 2 {
		t.Errorf("%d runs on the dashboard", n)
	}
	own := o.books(nil)
	if err := own.config.Dashboard.Send(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	own.Close()
	if n := len(o.api.Runs()); n != 2 {
		t.Errorf("%d runs on the dashboard, want one for each session", n)
	}
	if got := o.api.Sum("", "energy_consumed") * carbon.JoulesPerKWh; math.Abs(got-joules) > 1e-6 {
		t.Errorf("%v J on the dashboard, want %v", got, joules)
	}
	if got := o.api.Sum("", "emissions_sum") * 1000; math.Abs(got-grams) > 1e-9 {
		t.Errorf("%v g on the dashboard, want %v", got, grams)
	}
	if strings.Contains(o.log.String(), "level=WARN") {
		t.Error(o.log.String())
	}
}

// TestNowhere: where nobody knows where a run was, energy is told and nothing
// else is; and nothing leaves the machine.
func TestNowhere(t *testing.T) {
	o := newOffice(t)
	b := o.books(func(c *Config) { c.Places.Declared = nil })
	f := b.Footprint(usage.Usage{Began: noon, Wall: time.Second, CPU: time.Second, ByteSeconds: 1e9})
	if f.Emissions != nil || *f.Energy.Joules == 0 {
		t.Errorf("%+v", f)
	}
	tell(b, execution("a", "work", 2*time.Second, time.Second))
	b.Close()
	if e := o.entries(); len(e) != 1 || e[0].Grams != nil || *e[0].Joules == 0 || e[0].Country != "" {
		t.Errorf("%+v", e)
	}
	if r := o.rows(); len(r) != 1 || r[0]["emissions"] != "" || r[0]["country_name"] != "" || r[0]["energy_consumed"] == "" {
		t.Errorf("%v", r)
	}
	if got := o.api.Requests(); len(got) != 0 {
		t.Errorf("the dashboard was asked: %v", got)
	}
}

// TestEngineReplaced: an execution is in the ledger with the engine that runs code when
// it is recorded.
func TestEngineReplaced(t *testing.T) {
	o := newOffice(t)
	engine := "gvisor"
	b := o.books(func(c *Config) { c.Backend = func() string { return engine } })
	engine = "wasm"
	tell(b, execution("one", "work", 2*time.Second, time.Second))
	b.Close()
	var got []string
	for _, e := range o.entries() {
		got = append(got, e.Backend)
	}
	if want := []string{"wasm"}; !slices.Equal(got, want) {
		t.Errorf("got the engines %q, want %q", got, want)
	}
}

// TestRan: a run on another engine is accounted once, whoever learns of it.
func TestRan(t *testing.T) {
	o := newOffice(t)
	record := &runs.Record{ID: "run-1", Service: "kaggle", Program: "train.py", Created: noon, Began: noon,
		Result: &runs.Result{RanSeconds: 100, CPUSeconds: 50, MeanMemoryBytes: 1e9, PeakMemoryBytes: 3e9, CPUModel: "AMD EPYC 7B12 64-Core", GPUModel: "Tesla T4", GPUs: 2, GPUJoules: 5000}}
	for range 3 {
		b := o.books(nil)
		f := b.Ran(record)
		if f == nil || f.Emissions == nil || f.Emissions.Grid.Cloud != "gcp" || f.Energy.GPU.Method != carbon.GPUCounter || f.Energy.PUE == nil {
			t.Fatalf("%+v", f)
		}
		b.Ran(record)
		b.Close()
	}
	entries := o.entries()
	if len(entries) != 1 || entries[0].Backend != "kaggle" || entries[0].GPUModel != "Tesla T4" || entries[0].File != "train.py" || math.Abs(*entries[0].GPUJoules-5000*1.09) > 1e-6 {
		t.Errorf("%+v", entries)
	}
	if n := len(o.api.Runs()); n != 1 {
		t.Errorf("%d runs on the dashboard", n)
	}
	if got, want := o.api.Sum("", "energy_consumed")*carbon.JoulesPerKWh, *entries[0].Joules; math.Abs(got-want) > 1e-6 {
		t.Errorf("%v J on the dashboard, want %v", got, want)
	}
	b := o.books(nil)
	defer b.Close()
	for _, r := range []*runs.Record{nil, {ID: "x"}} {
		if b.Ran(r) != nil {
			t.Errorf("%+v has a footprint", r)
		}
	}
	// Numbers of a hostile place.
	for _, out := range []runs.Result{{RanSeconds: math.NaN(), CPUSeconds: math.Inf(1), GPUs: -5}, {RanSeconds: -1, CPUSeconds: 1e300, GPUs: 1 << 40, GPUModel: "Tesla T4"}} {
		out := out
		f := b.Ran(&runs.Record{ID: "y", Service: "runpod", Created: noon, Result: &out})
		if f == nil || f.Energy.Joules != nil && (math.IsNaN(*f.Energy.Joules) || math.IsInf(*f.Energy.Joules, 0) || *f.Energy.Joules < 0) {
			t.Errorf("%+v: %+v", out, f)
		}
	}
}

func TestPlaces(t *testing.T) {
	tables, err := carbon.Load()
	if err != nil {
		t.Fatal(err)
	}
	p := &Places{Tables: tables, Intensity: -1, Log: slog.New(slog.DiscardHandler)}
	if p.Here() != nil || p.Elsewhere("kaggle", "") != nil || p.Elsewhere("runpod", "US-ZZ-9") != nil || p.Elsewhere("other", "x") != nil {
		t.Error("an unknown place has an intensity")
	}
	if g := p.Elsewhere("runpod", "CA-MTL-1"); g == nil || g.Country != "CAN" || g.Region != "quebec" {
		t.Errorf("%+v", g)
	}
	p.RunPod = &carbon.Location{Country: "DEU"}
	if g := p.Elsewhere("runpod", ""); g == nil || g.Country != "DEU" {
		t.Errorf("%+v", g)
	}
	p.Intensity = 12
	if g := p.Here(); g == nil || g.GramsPerKWh != 12 || g.Country != "" {
		t.Errorf("%+v", g)
	}
	p.Refresh(t.Context()) // nothing was allowed to be asked
}

// TestLedgerOutOfOrder: what cannot be written now is written later.
func TestLedgerOutOfOrder(t *testing.T) {
	o := newOffice(t)
	if err := os.WriteFile(o.state.Path("ledger"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := o.books(func(c *Config) { c.CSV, c.Dashboard = nil, nil })
	tell(b, execution("a", "work", 2*time.Second, time.Second))
	b.flush()
	if err := os.Remove(o.state.Path("ledger")); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if e := o.entries(); len(e) != 1 || e[0].ID != "a" {
		t.Errorf("%+v", e)
	}
}

func TestUnknownEnds(t *testing.T) {
	if l := batch.Failed; l == "" {
		t.Fatal("a failed run has no name")
	}
	o := newOffice(t)
	b := o.books(func(c *Config) { c.Dashboard, c.CSV = nil, nil })
	b.Ran(&runs.Record{ID: "z", Service: "runpod", Created: noon, Result: &runs.Result{End: batch.Failed, Region: "EU-FR-1", RanSeconds: 3, CPUSeconds: 1}})
	b.Close()
	if e := o.entries(); len(e) != 1 || e[0].Failed != 1 || e[0].Country != "FRA" {
		t.Errorf("%+v", e)
	}
}

// A dashboard that takes requests and does not answer holds up neither the
// ledger nor the program's end.
func TestSilentDashboard(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	asked, over := make(chan struct{}, 100), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-over
	}))
	defer server.Close()
	defer close(over)
	o.url = server.URL
	b := o.books(nil)
	for n := range 20 { // what earlier processes left: each would be waited for
		key := fmt.Sprint("earlier ", n)
		if err := b.config.Dashboard.Add(codecarbon.Stream{Key: key}, codecarbon.Delta{Seconds: 1, Kilograms: 1, CPU: 1}); err != nil {
			t.Fatal(err)
		}
		if err := b.config.Dashboard.End(key); err != nil {
			t.Fatal(err)
		}
	}
	b.Start()
	<-asked // and from now on it is waited for
	for n := 1; n <= 2; n++ {
		tell(b, execution(fmt.Sprint(n), "s", time.Second, time.Second))
		for len(o.entries()) < n {
			time.Sleep(50 * time.Millisecond)
		}
	}
	begun := time.Now()
	b.Close()
	if took := time.Since(begun); took > 60*time.Second {
		t.Errorf("the end took %s", took)
	}
}

func TestRanAsSeen(t *testing.T) {
	o := newOffice(t)
	b := o.books(func(c *Config) { c.Dashboard, c.CSV = nil, nil })
	b.Ran(&runs.Record{ID: "a", Service: "runpod", Created: noon, Began: noon, Ended: noon.Add(30 * time.Second), Result: &runs.Result{MeanMemoryBytes: 1e9}})
	b.Ran(&runs.Record{ID: "b", Service: "runpod", Created: noon, Result: &runs.Result{RanSeconds: 1, CPUSeconds: math.Inf(1), PeakMemoryBytes: 1e9}})
	b.Close()
	e := o.entries()
	// The most that was held says nothing of what was held on average.
	if len(e) != 2 || e[0].Wall != 30 || e[0].MemoryJoules == nil || *e[0].MemoryJoules == 0 || e[1].MemoryJoules != nil || !slices.Contains(e[1].Missing, "memory") {
		t.Errorf("%+v", e)
	}
}

// TestAKilledProgram: what it held is in reports at once, and booked once.
func TestAKilledProgram(t *testing.T) {
	o := newOffice(t)
	killed := o.books(func(c *Config) { c.CSV, c.Dashboard = nil, nil })
	done := execution("done", "work", time.Second, time.Second)
	tell(killed, done)
	killed.mu.Lock()
	killed.runs = nil // it will not come to the next batch
	killed.mu.Unlock()
	for i := range 3 {
		e := execution("long", "work", time.Duration(i+1)*10*time.Second, time.Duration(i+1)*5*time.Second)
		e.Usage.Began, e.Usage.Open = noon.Add(time.Minute), true
		tell(killed, e)
		tell(killed, rested("other", usage.Usage{Began: noon.Add(time.Hour), Wall: time.Duration(i+1) * time.Second, CPU: time.Second, ByteSeconds: 1e9, Open: true}))
	}
	killed.flushing.Lock()
	killed.hold()
	killed.holder.Abandon() // as the end of its process does
	killed.mu.Lock()
	killed.holder, killed.open = nil, map[openKey]*journal.Used{}
	killed.mu.Unlock()
	killed.flushing.Unlock()
	killed.Close()
	check := func(when string, failed int) {
		t.Helper()
		var got []string
		for _, e := range o.entries() {
			got = append(got, fmt.Sprint(e.Kind, " ", e.ID, " ", e.Wall, " ", *e.CPU, " ", e.Failed))
		}
		slices.Sort(got)
		if want := fmt.Sprint([]string{"rest  3 1 0", "run done 1 1 " + fmt.Sprint(failed), "run long 30 15 " + fmt.Sprint(failed)}); fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, want %s", when, got, want)
		}
	}
	check("held", 0)
	for range 3 {
		b := o.books(nil)
		b.Start()
		b.Close()
		check("booked", 1)
	}
	if rows := o.rows(); len(rows) != 3 {
		t.Errorf("got %d lines of emissions.csv, want 3", len(rows))
	}
}

// TestHeldIsBookedOnce: also where the program died between the two.
func TestHeldIsBookedOnce(t *testing.T) {
	o := newOffice(t)
	b := o.books(nil)
	e := execution("long", "work", 10*time.Second, 5*time.Second)
	e.Usage.Open = true
	tell(b, e)
	b.flushing.Lock()
	b.hold()
	held, err := os.ReadFile(b.config.Ledger.HeldPath(b.instance))
	b.flushing.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	e.Usage.Open = false
	tell(b, e)
	b.Close()
	if _, err := os.Stat(b.config.Ledger.HeldPath(b.instance)); !os.IsNotExist(err) {
		t.Errorf("a program that has ended holds something: %v", err)
	}
	if err := os.WriteFile(b.config.Ledger.HeldPath("killed"), held, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again := o.books(nil)
		again.Start()
		again.Close()
		if got := o.entries(); len(got) != 1 || got[0].Wall != 10 {
			t.Errorf("got %+v, want the run once", got)
		}
	}
}

// TestClaimsAreForgotten: that a run was accounted is remembered for as long as
// its end may be told again, and not for ever.
func TestClaimsAreForgotten(t *testing.T) {
	o := newOffice(t)
	b := o.books(nil)
	defer b.Close()
	claims := o.state.Sub("claims")
	for _, id := range []string{"run-old", "run-new"} {
		if !b.claim(id) {
			t.Fatalf("%s cannot be claimed", id)
		}
	}
	old := time.Now().Add(-claimed - time.Hour)
	if err := os.Chtimes(claims.Path("run-old"), old, old); err != nil {
		t.Fatal(err)
	}
	if !b.claim("run-next") {
		t.Error("run-next cannot be claimed")
	}
	if got, err := claims.List(); err != nil || !slices.Equal(got, []string{"run-new", "run-next"}) {
		t.Errorf("got the claims %q, %v; want those of run-new and run-next", got, err)
	}
	if b.claim("run-new") {
		t.Error("run-new was claimed twice")
	}
}
