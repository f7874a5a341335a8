package usage

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begunAt adds an execution to a meter, at chosen times.
func begunAt(m *Meter, began, ended time.Time, report func(Usage)) *Execution {
	e := &Execution{report: report, usage: Usage{Began: began, PeakBytes: -1}, ended: ended}
	if !ended.IsZero() {
		e.usage.Wall = ended.Sub(began)
	}
	m.executions = append(m.executions, e)
	return e
}

func TestMeterDivides(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var idle []Usage
	reported := map[string]Usage{}
	tell := func(name string) func(Usage) {
		return func(s Usage) {
			if !s.Open {
				reported[name] = s
			}
		}
	}
	m := NewMeter(nil)
	m.at = start
	m.OnIdle(func(s Usage) {
		if !s.Open {
			idle = append(idle, s)
		}
	})

	// The start of the sandbox belongs to nobody's code.
	m.Add(sandbox.Usage{CPU: 300 * time.Millisecond, MemoryBytes: 1000, PeakBytes: 1000}, at(1000))

	// Two executions share what was used between two measurements by the time
	// that they took; a third goes on.
	begunAt(m, at(1000), at(1100), tell("a"))
	begunAt(m, at(1200), at(1500), tell("b"))
	begunAt(m, at(1900), time.Time{}, tell("c"))
	m.Add(sandbox.Usage{CPU: 550 * time.Millisecond, MemoryBytes: 3000, PeakBytes: 4000}, at(2000))
	if len(reported) != 2 {
		t.Fatalf("reported: %v", reported)
	}
	// 250 ms for 500 ms of executions, of which one may use all processors.
	if a, b := reported["a"], reported["b"]; a.CPU != 50*time.Millisecond || b.CPU != 150*time.Millisecond ||
		a.Wall != 100*time.Millisecond || a.ByteSeconds != 200 || b.PeakBytes != 4000 {
		t.Errorf("a %+v\nb %+v", a, b)
	}
	c := m.executions[0]
	c.ended, c.usage.Wall = at(2100), 200*time.Millisecond
	if got := m.Usage(c); got.CPU != 100*time.Millisecond { // of half of it 50 are known
		t.Errorf("c so far: %+v", got)
	}

	// No more than all processors for all of its time: the rest is background.
	most := 100 * time.Millisecond * time.Duration(runtime.NumCPU())
	m.Add(sandbox.Usage{CPU: 550*time.Millisecond + most + time.Second, MemoryBytes: 3000, PeakBytes: 4000}, at(4000))
	if c := reported["c"]; c.CPU != 50*time.Millisecond+most {
		t.Errorf("c %+v", c)
	}
	// An old measurement, and one that says nothing, change nothing.
	m.Add(sandbox.Usage{CPU: time.Hour}, at(3000))
	m.Add(sandbox.Usage{CPU: -1}, at(5000))

	// What nobody measured is not known, and not nothing.
	begunAt(m, at(4000), at(4001), tell("d"))
	m.Close(true)
	if d := reported["d"]; d.CPU >= 0 || d.ByteSeconds >= 0 || d.Wall != time.Millisecond {
		t.Errorf("d %+v", d)
	}
	if len(idle) != 1 {
		t.Fatalf("idle: %v", idle)
	}
	// 1 s of start, 500 ms between executions, 1900 ms after c.
	if r := idle[0]; r.Wall != 3400*time.Millisecond || r.CPU != 300*time.Millisecond+time.Second {
		t.Errorf("rest %+v", r)
	}
	m.Close(true)
}

func TestMemoryUnknown(t *testing.T) {
	start := time.Now()
	m := NewMeter(nil)
	m.at = start
	var got Usage
	begunAt(m, start, start.Add(time.Second), func(s Usage) { got = s })
	m.Add(sandbox.Usage{CPU: time.Second, MemoryBytes: -1, PeakBytes: -1}, start.Add(time.Second))
	if got.CPU != time.Second || got.ByteSeconds >= 0 {
		t.Errorf("%+v", got)
	}
}

// An execution whose sandbox is ended under it has ended then, and is reported once,
// while its own end comes.
func TestCloseWhileRunning(t *testing.T) {
	for range 50 {
		m := NewMeter(nil)
		reported := make(chan Usage, 2)
		r := m.Begin(func(s Usage) { reported <- s })
		var both sync.WaitGroup
		both.Go(func() { m.Close(false) })
		both.Go(func() { m.End(r) })
		both.Wait()
		first := <-reported
		m.End(r)
		if now := m.Usage(r); len(reported) != 0 || now.Wall != first.Wall {
			t.Fatalf("reported %v, now %v, and %d more", first.Wall, now.Wall, len(reported))
		}
	}
}

// TestInterimReports: now and then, and what it tells last of an execution
// is the whole of it.
func TestInterimReports(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var reported, idle []Usage
	m := NewMeter(nil)
	m.at, m.interimAt, m.idle.Began = start, start, start
	m.OnIdle(func(s Usage) { idle = append(idle, s) })
	r := begunAt(m, at(0), time.Time{}, func(s Usage) { reported = append(reported, s) })
	for ms := 100; ms <= 3000; ms += 100 {
		m.Add(sandbox.Usage{CPU: time.Duration(ms) * time.Millisecond / 2, MemoryBytes: 1000, PeakBytes: 1000}, at(ms))
	}
	if len(reported) != 3 {
		t.Fatalf("got %+v, want to be reported once a second", reported)
	}
	for i, s := range reported {
		if wall := time.Duration(i+1) * time.Second; !s.Open || s.Wall != wall || s.CPU != wall/2 || !s.Began.Equal(start) {
			t.Errorf("got %+v after %v", s, wall)
		}
	}
	r.ended, r.usage.Wall = at(3000), 3*time.Second
	m.Add(sandbox.Usage{CPU: 1500 * time.Millisecond, MemoryBytes: 1000, PeakBytes: 1000}, at(3100))
	if len(reported) != 4 || reported[3].Open || reported[3].Wall != 3*time.Second {
		t.Errorf("got %+v, want the end, once", reported)
	}
	for ms := 3200; ms <= 6000; ms += 100 {
		m.Add(sandbox.Usage{CPU: 2 * time.Second, MemoryBytes: 1000, PeakBytes: 1000}, at(ms))
	}
	last := idle[len(idle)-1]
	if !last.Open || last.Wall < 2*time.Second || last.CPU != 500*time.Millisecond {
		t.Errorf("got %+v of the rest, which goes on", idle)
	}
}
