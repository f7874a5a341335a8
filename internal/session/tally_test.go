package session

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"sallyport/internal/sandbox"
)

// begunAt makes an execution of a tally, at chosen times.
func begunAt(t *tally, began, ended time.Time, told func(Spent)) *metered {
	r := &metered{told: told, Spent: Spent{Began: began, PeakBytes: -1}, ended: ended}
	if !ended.IsZero() {
		r.Wall = ended.Sub(began)
	}
	t.runs = append(t.runs, r)
	return r
}

func TestTallyDivides(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var rested []Spent
	told := map[string]Spent{}
	tell := func(name string) func(Spent) {
		return func(s Spent) {
			if !s.Open {
				told[name] = s
			}
		}
	}
	tl := newTally(nil)
	tl.at = start
	tl.of(func(s Spent) {
		if !s.Open {
			rested = append(rested, s)
		}
	})

	// The start of the sandbox belongs to nobody's code.
	tl.add(sandbox.Usage{CPU: 300 * time.Millisecond, MemoryBytes: 1000, PeakBytes: 1000}, at(1000))

	// Two executions share what was used between two measurements by the time
	// that they took; a third goes on.
	begunAt(tl, at(1000), at(1100), tell("a"))
	begunAt(tl, at(1200), at(1500), tell("b"))
	begunAt(tl, at(1900), time.Time{}, tell("c"))
	tl.add(sandbox.Usage{CPU: 550 * time.Millisecond, MemoryBytes: 3000, PeakBytes: 4000}, at(2000))
	if len(told) != 2 {
		t.Fatalf("told: %v", told)
	}
	// 250 ms for 500 ms of executions, of which one may use all processors.
	if a, b := told["a"], told["b"]; a.CPU != 50*time.Millisecond || b.CPU != 150*time.Millisecond ||
		a.Wall != 100*time.Millisecond || a.ByteSeconds != 200 || b.PeakBytes != 4000 {
		t.Errorf("a %+v\nb %+v", a, b)
	}
	c := tl.runs[0]
	c.ended, c.Wall = at(2100), 200*time.Millisecond
	if got := tl.spent(c); got.CPU != 100*time.Millisecond { // of half of it 50 are known
		t.Errorf("c so far: %+v", got)
	}

	// No more than all processors for all of its time: the rest is background.
	most := 100 * time.Millisecond * time.Duration(runtime.NumCPU())
	tl.add(sandbox.Usage{CPU: 550*time.Millisecond + most + time.Second, MemoryBytes: 3000, PeakBytes: 4000}, at(4000))
	if c := told["c"]; c.CPU != 50*time.Millisecond+most {
		t.Errorf("c %+v", c)
	}
	// An old measurement, and one that says nothing, change nothing.
	tl.add(sandbox.Usage{CPU: time.Hour}, at(3000))
	tl.add(sandbox.Usage{CPU: -1}, at(5000))

	// What nobody measured is not known, and not nothing.
	begunAt(tl, at(4000), at(4001), tell("d"))
	tl.close(true)
	if d := told["d"]; d.CPU >= 0 || d.ByteSeconds >= 0 || d.Wall != time.Millisecond {
		t.Errorf("d %+v", d)
	}
	if len(rested) != 1 {
		t.Fatalf("rested: %v", rested)
	}
	// 1 s of start, 500 ms between executions, 1900 ms after c.
	if r := rested[0]; r.Wall != 3400*time.Millisecond || r.CPU != 300*time.Millisecond+time.Second {
		t.Errorf("rest %+v", r)
	}
	tl.close(true)
}

func TestTallyOfAnEngineThatKnowsNoMemory(t *testing.T) {
	start := time.Now()
	tl := newTally(nil)
	tl.at = start
	var got Spent
	begunAt(tl, start, start.Add(time.Second), func(s Spent) { got = s })
	tl.add(sandbox.Usage{CPU: time.Second, MemoryBytes: -1, PeakBytes: -1}, start.Add(time.Second))
	if got.CPU != time.Second || got.ByteSeconds >= 0 {
		t.Errorf("%+v", got)
	}
}

// TestEveryExecutionIsAccounted: short ones too, and once each, whether their
// sandbox lives, ends or dies, and their sum is what was used.
func TestEveryExecutionIsAccounted(t *testing.T) {
	for _, last := range []string{"say done", "vanish"} {
		t.Run(last, func(t *testing.T) {
			var mu sync.Mutex
			var told []Spent
			var cpu time.Duration
			e := &scripted{metered: true, guest: each(words)}
			s := newSession(t, e, func(c *Config) {
				c.Rested = func(name string, r Spent) {
					mu.Lock()
					defer mu.Unlock()
					if name != "test" {
						t.Errorf("the rest of %q", name)
					}
					cpu += r.CPU
				}
			})
			run := func(code string) {
				t.Helper()
				_, err := s.Exec(context.Background(), s.Enter(), Request{Code: code, Timeout: time.Minute, Spent: func(r Spent) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, r)
					if r.CPU > 0 {
						cpu += r.CPU
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
			}
			run("say first")
			e.run(0).spin(0.5)
			const n = 40
			for range n - 2 {
				run("say x")
			}
			run(last)
			s.Close()
			mu.Lock()
			defer mu.Unlock()
			if len(told) != n {
				t.Errorf("%d executions were accounted, of %d", len(told), n)
			}
			for _, r := range told {
				if r.Wall <= 0 || r.Began.IsZero() {
					t.Errorf("%+v", r)
				}
			}
			e.run(0).mu.Lock()
			used := e.run(0).cpu
			e.run(0).mu.Unlock()
			if last != "vanish" && (cpu > used || used-cpu > time.Millisecond) {
				t.Errorf("%v of %v were accounted", cpu, used)
			}
		})
	}
}

// TestMeasureOnDemand: a short execution's outcome has its usage when asked.
func TestMeasureOnDemand(t *testing.T) {
	s := newSession(t, &scripted{metered: true, guest: each(words)}, nil)
	for _, measure := range []bool{false, true} {
		out, err := s.Exec(context.Background(), s.Enter(), Request{Code: "say x", Timeout: time.Minute, Measure: measure})
		if err != nil {
			t.Fatal(err)
		}
		if (out.Usage != nil) != measure || measure && (out.Usage.CPU < 0 || out.Usage.Wall <= 0 || out.Usage.PeakBytes != 2<<20) {
			t.Errorf("measure %v: %+v", measure, out.Usage)
		}
	}
}

// An execution whose sandbox is ended under it has ended then, and is told once,
// while its own end comes.
func TestTallyEndedUnderIt(t *testing.T) {
	for range 50 {
		tl := newTally(nil)
		told := make(chan Spent, 2)
		r := tl.begin(func(s Spent) { told <- s })
		var both sync.WaitGroup
		both.Go(func() { tl.close(false) })
		both.Go(func() { tl.end(r) })
		both.Wait()
		first := <-told
		tl.end(r)
		if now := tl.spent(r); len(told) != 0 || now.Wall != first.Wall {
			t.Fatalf("told %v, now %v, and %d more", first.Wall, now.Wall, len(told))
		}
	}
}

// TestTallyTellsWhatGoesOn: now and then, and what it tells last of an execution
// is the whole of it.
func TestTallyTellsWhatGoesOn(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var told, rested []Spent
	tl := newTally(nil)
	tl.at, tl.open, tl.idle.Began = start, start, start
	tl.of(func(s Spent) { rested = append(rested, s) })
	r := begunAt(tl, at(0), time.Time{}, func(s Spent) { told = append(told, s) })
	for ms := 100; ms <= 3000; ms += 100 {
		tl.add(sandbox.Usage{CPU: time.Duration(ms) * time.Millisecond / 2, MemoryBytes: 1000, PeakBytes: 1000}, at(ms))
	}
	if len(told) != 3 {
		t.Fatalf("got %+v, want to be told once a second", told)
	}
	for i, s := range told {
		if wall := time.Duration(i+1) * time.Second; !s.Open || s.Wall != wall || s.CPU != wall/2 || !s.Began.Equal(start) {
			t.Errorf("got %+v after %v", s, wall)
		}
	}
	r.ended, r.Wall = at(3000), 3*time.Second
	tl.add(sandbox.Usage{CPU: 1500 * time.Millisecond, MemoryBytes: 1000, PeakBytes: 1000}, at(3100))
	if len(told) != 4 || told[3].Open || told[3].Wall != 3*time.Second {
		t.Errorf("got %+v, want the end, once", told)
	}
	for ms := 3200; ms <= 6000; ms += 100 {
		tl.add(sandbox.Usage{CPU: 2 * time.Second, MemoryBytes: 1000, PeakBytes: 1000}, at(ms))
	}
	last := rested[len(rested)-1]
	if !last.Open || last.Wall < 2*time.Second || last.CPU != 500*time.Millisecond {
		t.Errorf("got %+v of the rest, which goes on", rested)
	}
}
