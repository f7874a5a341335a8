package codecarbon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/usage/carbon/codecarbon/codecarbontest"
)

// clock is a time that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type desk struct {
	t     *testing.T
	api   *codecarbontest.API
	url   string
	dir   store.Dir
	clock *clock
	log   bytes.Buffer
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, api: &codecarbontest.API{Token: testToken}, dir: store.At(filepath.Join(t.TempDir(), "outbox")),
		clock: &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}}
	server := httptest.NewServer(d.api)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// process is an outbox as another process has it.
func (d *desk) process() *Outbox {
	d.t.Helper()
	o, err := NewOutbox(Options{Dir: d.dir, Now: d.clock.Now, Log: slog.New(slog.NewTextHandler(&d.log, nil)),
		Config: Config{Token: NewSecret(testToken), ExperimentID: testExperiment, Endpoint: d.url}})
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

func (d *desk) add(o *Outbox, key string, seconds float64) {
	d.t.Helper()
	err := o.Add(Stream{Key: key, Run: RunCreate{OS: "Linux", CPUs: 2, RAM: 16, TrackingMode: "process"}},
		Delta{Seconds: seconds, Kilograms: seconds * 1e-6, CPU: seconds * 1e-6, RAM: seconds * 5e-7, CPUSeconds: seconds})
	if err != nil {
		d.t.Fatal(err)
	}
}

// drain sends until nothing is left, with time passing, by a new process each
// time. It gives up after many attempts.
func (d *desk) drain() {
	d.t.Helper()
	for range 200 {
		o := d.process()
		err := o.Send(d.t.Context(), true)
		s, statusErr := o.Status()
		if statusErr != nil {
			d.t.Fatal(statusErr)
		}
		if err == nil && s.Waiting == 0 {
			return
		}
		d.clock.pass(5 * time.Second)
	}
	s, _ := d.process().Status()
	d.t.Fatalf("the outbox does not empty: %+v", s)
}

// check holds the dashboard against what was added.
func (d *desk) check(runs int, seconds float64) {
	d.t.Helper()
	if n := len(d.api.Runs()); n != runs {
		d.t.Errorf("%d runs, want %d", n, runs)
	}
	for field, each := range map[string]float64{"emissions_sum": 1e-6, "cpu_energy": 1e-6, "ram_energy": 5e-7, "energy_consumed": 1.5e-6} {
		if got := d.api.Sum("", field); math.Abs(got-seconds*each) > 1e-12 {
			d.t.Errorf("%s: %v, want %v", field, got, seconds*each)
		}
	}
	if strings.Contains(d.log.String(), testToken) {
		d.t.Error("the token is in the log")
	}
}

func TestOutbox(t *testing.T) {
	d := newDesk(t)
	o := d.process()
	// Many short stretches, by two processes: one run, whole seconds, nothing lost.
	other := d.process()
	for i := range 40 {
		d.add([]*Outbox{o, other}[i%2], "work", 0.26)
		if err := o.Send(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		d.clock.pass(time.Second)
	}
	if err := o.End("work"); err != nil {
		t.Fatal(err)
	}
	d.drain()
	d.check(1, 10.4)
	duration := d.api.Sum("", "duration")
	if duration < 10.4 || duration > 11.4 {
		t.Errorf("%v s, want the next whole second after 10.4", duration)
	}
	if n := len(d.api.Emissions("")); n < 2 || n > 4 {
		t.Errorf("%d emissions in 40 s", n)
	}
	for _, e := range d.api.Emissions("") {
		if p := e["cpu_utilization_percent"].(float64); p < 20 || p > 51 {
			t.Errorf("one of two processors: %v %%", p)
		}
	}
	if names, _ := d.dir.List(); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestOutboxShort: a run shorter than a second is not dropped.
func TestOutboxShort(t *testing.T) {
	d := newDesk(t)
	d.add(d.process(), "x", 0.0005)
	d.clock.pass(3 * time.Minute) // its process is gone
	d.drain()
	d.check(1, 0.0005)
	if got := d.api.Sum("", "duration"); got != 1 {
		t.Errorf("duration %v", got)
	}
}

// TestOutboxFaults: whatever becomes of requests, all is there once.
func TestOutboxFaults(t *testing.T) {
	for name, faults := range map[string][]codecarbontest.Fault{
		"dropped":    {codecarbontest.Dropped, codecarbontest.Dropped, codecarbontest.None, codecarbontest.Dropped},
		"lost":       {codecarbontest.Lost, codecarbontest.None, codecarbontest.Lost, codecarbontest.None, codecarbontest.Lost},
		"busy":       {codecarbontest.Busy, codecarbontest.None, codecarbontest.Busy},
		"broken":     {codecarbontest.Broken, codecarbontest.Broken, codecarbontest.None, codecarbontest.Broken},
		"gateway":    {codecarbontest.Gateway, codecarbontest.None, codecarbontest.Gateway, codecarbontest.Gateway},
		"everything": {codecarbontest.Lost, codecarbontest.Busy, codecarbontest.Dropped, codecarbontest.Gateway, codecarbontest.Broken, codecarbontest.Lost, codecarbontest.Lost, codecarbontest.None, codecarbontest.Gateway, codecarbontest.Dropped},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			n := 0
			d.api.Fault = func(string, string) codecarbontest.Fault {
				n++
				if n <= len(faults) {
					return faults[n-1]
				}
				return codecarbontest.None
			}
			total := 0.0
			for i := range 6 {
				d.add(d.process(), "work", 1.5)
				total += 1.5
				_ = d.process().Send(t.Context(), i%2 == 0) // its errors are the point
				d.clock.pass(20 * time.Second)
			}
			d.clock.pass(3 * time.Minute)
			d.drain()
			d.check(1, total)
		})
	}
}

// TestOutboxCrashes: a process may die after any write, and any request may
// have been taken by then.
func TestOutboxCrashes(t *testing.T) {
	d := newDesk(t)
	total := 0.0
	for i := range 30 {
		d.add(d.process(), "work", 1.25)
		total += 1.25
		// It sends, and dies before it writes down what became of it: the
		// record is as it was before the request.
		o := d.process()
		name := o.fileOf("work")
		next, err := o.next(name, true)
		if err != nil {
			t.Fatal(err)
		}
		if next != nil && i%3 != 0 {
			if _, err := next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		d.clock.pass(10 * time.Second)
	}
	d.clock.pass(3 * time.Minute)
	d.drain()
	d.check(1, total)
}

// TestOutboxTogether: several processes add and send at the same time; while
// the making of a run takes long, no second one is made.
func TestOutboxTogether(t *testing.T) {
	d := newDesk(t)
	slow := make(chan struct{})
	var once sync.Once
	d.api.Fault = func(method, path string) codecarbontest.Fault {
		if path == "/runs" {
			once.Do(func() { close(slow) })
		}
		return codecarbontest.None
	}
	var all sync.WaitGroup
	for range 4 {
		o := d.process()
		all.Go(func() {
			for range 20 {
				d.add(o, "work", 0.5)
				if err := o.Send(t.Context(), true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	<-slow
	d.clock.pass(3 * time.Minute)
	d.drain()
	d.check(1, 40)
}

// TestOutboxDoubt: where the dashboard does not say what it took, nothing is
// counted twice, and the user decides.
func TestOutboxDoubt(t *testing.T) {
	for _, resend := range []bool{true, false} {
		d := newDesk(t)
		d.api.Blind = true
		first := true
		d.api.Fault = func(method, path string) codecarbontest.Fault {
			if path == "/emissions" && first {
				first = false
				return codecarbontest.Dropped
			}
			return codecarbontest.None
		}
		d.add(d.process(), "work", 2)
		for range 5 {
			_ = d.process().Send(t.Context(), true)
			d.clock.pass(10 * time.Second)
		}
		s, err := d.process().Status()
		if err != nil || s.Doubtful != 1 || len(d.api.Emissions("")) != 0 || s.Waiting == 0 || !strings.Contains(strings.Join(s.Troubles, " "), "--resend") {
			t.Errorf("%+v, %v, %d emissions", s, err, len(d.api.Emissions("")))
		}
		if n, err := d.process().Decide(resend); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		d.clock.pass(time.Hour)
		d.drain()
		if got := len(d.api.Emissions("")); (got == 1) != resend {
			t.Errorf("resend %v: %d emissions", resend, got)
		}
	}
}

// TestOutboxRefused: a wrong token loses nothing, is said, and not shown.
func TestOutboxRefused(t *testing.T) {
	d := newDesk(t)
	d.api.Token = "another"
	o := d.process()
	d.add(o, "work", 2)
	err := o.Send(t.Context(), true)
	if err == nil || strings.Contains(err.Error(), testToken) || !strings.Contains(err.Error(), "403") {
		t.Errorf("%v", err)
	}
	// It is not tried at once again, unless that is asked for.
	before := len(d.api.Requests())
	if err := o.Send(t.Context(), false); err != nil || len(d.api.Requests()) != before {
		t.Errorf("%v, %d requests", err, len(d.api.Requests())-before)
	}
	s, _ := o.Status()
	if s.Waiting == 0 || len(s.Troubles) != 1 {
		t.Errorf("%+v", s)
	}
	d.api.Token = testToken
	d.drain()
	d.check(1, 2)
}

// TestOutboxStreams: each session is a run, and one that comes back after long
// is a new one.
func TestOutboxStreams(t *testing.T) {
	d := newDesk(t)
	for _, key := range []string{"a", "b", "a"} {
		d.add(d.process(), key, 2)
		d.drain()
	}
	d.check(2, 6)
	d.clock.pass(25 * time.Hour)
	d.add(d.process(), "a", 2)
	d.drain()
	d.check(3, 8)
	// Another dashboard's are left alone.
	elsewhere, err := NewOutbox(Options{Dir: d.dir, Now: d.clock.Now, Config: Config{Token: NewSecret("t"), ExperimentID: testExperiment, Endpoint: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	d.add(d.process(), "b", 2)
	if err := elsewhere.Send(t.Context(), true); err != nil {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.process().Send(ctx, true); err == nil {
		t.Error("sent for a caller that has gone")
	}
}

// TestHostileAnswers: what the service says is not believed.
func TestHostileAnswers(t *testing.T) {
	d := newDesk(t)
	o := d.process()
	for _, said := range []string{testToken, strings.Repeat("x", 1000), "\x1b[2J" + string([]byte{0xff})} {
		text := o.api.said([]byte(said))
		if strings.Contains(text, testToken) || len(text) > 1000 || strings.ContainsRune(text, 0x1b) {
			t.Errorf("%q", text)
		}
	}
	if sameStamp("x", "x") || !sameStamp("2026-11-20T09:48:55.068184", "2026-11-20T10:48:55.068184+01:00") {
		t.Error("timestamps")
	}
}

// TestTokenIsNotOnDisk: the outbox holds none.
func TestTokenIsNotOnDisk(t *testing.T) {
	d := newDesk(t)
	d.add(d.process(), "a", 2)
	names, _ := d.dir.List()
	for _, n := range names {
		raw, err := os.ReadFile(d.dir.Path(n))
		if err != nil || bytes.Contains(raw, []byte(testToken)) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if len(names) != 1 || !slices.Contains(names, d.process().fileOf("a")) {
		t.Error(fmt.Sprint(names))
	}
}

// A clock that is set back holds nothing up until it is there again.
func TestOutboxClockSetBack(t *testing.T) {
	d := newDesk(t)
	o := d.process()
	d.add(o, "s", 2)
	d.clock.pass(time.Minute)
	if err := o.Send(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	d.add(o, "s", 3)
	d.clock.pass(-1000 * time.Hour)
	if err := d.process().Send(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	d.check(1, 5)
}

// Streams that are over leave nothing: there is one for each process and each run.
func TestOutboxLeavesNothing(t *testing.T) {
	d := newDesk(t)
	o := d.process()
	for n := range 20 {
		key := fmt.Sprint("s ", n)
		d.add(o, key, 2)
		if err := o.End(key); err != nil {
			t.Fatal(err)
		}
	}
	d.drain()
	if err := d.process().Send(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	d.check(20, 40)
	left, err := os.ReadDir(d.dir.Path(""))
	if err != nil || len(left) > 1 {
		t.Errorf("%d files, such as %v, %v", len(left), left[0], err)
	}
}
