package session

import (
	"runtime"
	"sync"
	"time"

	"sallyport/internal/sandbox"
)

// Spent is what an execution, or a sandbox at rest, used.
type Spent struct {
	Began time.Time
	Wall  time.Duration
	// CPU is processor time; negative is unknown.
	CPU time.Duration
	// ByteSeconds is memory times the time for which it was held; negative is
	// unknown.
	ByteSeconds float64
	PeakBytes   int64 // of the sandbox so far; negative is unknown
	// Open says that it goes on: this is what it used so far.
	Open bool
}

const (
	// tallyAfter is how long after an execution its sandbox is measured, unless
	// somebody measures it before: many short executions share a measurement.
	tallyAfter = time.Second
	// restEvery is how often what a sandbox uses at rest is told, at most.
	restEvery = 5 * time.Minute
	// openEvery is how often what is not over is told, at most. With the pause
	// before it is on disk, no more than two seconds are lost with the program.
	openEvery = time.Second
)

// tally divides what a sandbox used among its executions and its rest. The
// path of a request only notes when code began and ended: the sandbox is
// measured afterwards, and what it used between two measurements is divided by
// the time that the executions between them took. They cannot have used more
// than all processors for all of that time; whatever more there is was used at
// rest, by the sandbox's start or by what code left running.
//
// A nil tally counts nothing. It is safe for concurrent use.
type tally struct {
	measure func() (sandbox.Usage, bool) // feeds add; nil: nothing measures it

	mu    sync.Mutex
	rest  func(Spent) // nil: nobody asks
	at    time.Time   // of the last measurement
	last  sandbox.Usage
	runs  []*metered // that no measurement has followed yet
	idle  Spent      // of the rest, not told yet
	open  time.Time  // when what is not over was told last
	timer *time.Timer
	begun bool // an execution has
	done  bool
	all   sync.WaitGroup // measurements by the tally itself
}

// metered is one execution.
type metered struct {
	Spent
	told  func(Spent) // nil: nobody asks; also of what is not over
	ended time.Time   // zero: it runs

	counted time.Duration // the part of its time that was measured
	blind   bool          // its memory was not
}

// newTally begins with a sandbox that has used nothing yet.
func newTally(measure func() (sandbox.Usage, bool)) *tally {
	now := time.Now()
	return &tally{measure: measure, at: now, open: now, idle: Spent{Began: now, PeakBytes: -1}}
}

// of says whom to tell of the rest.
func (t *tally) of(rest func(Spent)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = rest
}

// begin notes that an execution begins. told, which may be nil, is called now and
// then while it runs, with Open set, and once when it is known what it used,
// perhaps much later; it must not block.
func (t *tally) begin(told func(Spent)) *metered {
	if t == nil {
		return nil
	}
	r := &metered{told: told, Spent: Spent{Began: time.Now(), PeakBytes: -1}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = append(t.runs, r)
	if !t.begun && !t.done && t.measure != nil {
		// Beside the code: what was used until now was the sandbox's start.
		t.begun = true
		t.all.Go(func() { t.measure() })
	}
	return r
}

// end notes that it has ended, and says what is known of it.
func (t *tally) end(r *metered) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !r.ended.IsZero() {
		return // close was faster, and tells it without the lock
	}
	r.ended = time.Now()
	r.Wall = r.ended.Sub(r.Began)
	t.arm()
}

// spent is what is known of an execution by now.
func (t *tally) spent(r *metered) Spent {
	if t == nil {
		return Spent{CPU: unknownCPU, ByteSeconds: -1, PeakBytes: -1}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.estimate()
}

// arm sees to a measurement. The lock is held.
func (t *tally) arm() {
	if t.timer == nil && !t.done {
		t.all.Add(1)
		t.timer = time.AfterFunc(tallyAfter, func() {
			defer t.all.Done()
			t.settle()
		})
	}
}

// settle measures, and tells whatever can be told.
func (t *tally) settle() {
	ok := false
	if t.measure != nil {
		_, ok = t.measure()
	}
	t.mu.Lock()
	t.timer = nil
	var over []*metered
	if !ok {
		over = t.over(time.Now())
	} else if len(t.runs) > 0 && !t.runs[0].ended.IsZero() {
		t.arm() // it ended while we measured
	}
	t.mu.Unlock()
	tell(over)
}

// add takes a measurement that was asked for at that time.
func (t *tally) add(u sandbox.Usage, at time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	span := at.Sub(t.at)
	if span <= 0 || u.CPU < 0 {
		t.mu.Unlock()
		return
	}
	memory := float64(-1)
	if u.MemoryBytes >= 0 {
		memory = float64(u.MemoryBytes+max(0, t.last.MemoryBytes)) / 2
		if t.last.MemoryBytes <= 0 {
			memory = float64(u.MemoryBytes)
		}
	}
	var busy time.Duration
	for _, r := range t.runs {
		busy += r.within(t.at, at)
	}
	cpu := max(0, u.CPU-t.last.CPU)
	theirs := min(cpu, busy*time.Duration(runtime.NumCPU()))
	for _, r := range t.runs {
		if wall := r.within(t.at, at); wall > 0 {
			r.CPU += time.Duration(float64(theirs) * float64(wall) / float64(busy))
			r.ByteSeconds += memory * wall.Seconds()
			r.blind = r.blind || memory < 0
			r.counted += wall
		}
		r.PeakBytes = u.PeakBytes
	}
	t.idle.CPU += cpu - theirs
	t.idle.Wall += max(0, span-busy)
	if memory < 0 {
		t.idle.ByteSeconds = -1
	} else if t.idle.ByteSeconds >= 0 {
		t.idle.ByteSeconds += memory * max(0, span-busy).Seconds()
	}
	t.idle.PeakBytes = u.PeakBytes
	t.at, t.last = at, u
	over := t.over(at)
	rest, idle := t.rested(restEvery, at)
	open := t.goesOn(at)
	t.mu.Unlock()
	tell(over)
	if rest != nil {
		rest(idle)
	}
	for _, tell := range open {
		tell()
	}
}

// goesOn is what is to be told of executions and of a rest that are not over,
// where that is due. The lock is held.
func (t *tally) goesOn(at time.Time) (tell []func()) {
	if at.Sub(t.open) < openEvery {
		return nil
	}
	t.open = at
	for _, r := range t.runs {
		if r.told == nil || !r.ended.IsZero() {
			continue // it is told in a moment
		}
		so := *r
		so.Wall, so.Open = max(0, at.Sub(r.Began)), true
		tell = append(tell, func() { so.told(so.estimate()) })
	}
	if idle := t.idle; t.rest != nil && idle.Wall > 0 {
		rest := t.rest
		idle.Open = true
		tell = append(tell, func() { rest(idle) })
	}
	return tell
}

// over takes out the executions that had ended at that time. The lock is held.
func (t *tally) over(at time.Time) []*metered {
	var over []*metered
	left := t.runs[:0]
	for _, r := range t.runs {
		if r.ended.IsZero() || r.ended.After(at) {
			left = append(left, r)
		} else {
			over = append(over, r)
		}
	}
	clear(t.runs[len(left):])
	t.runs = left
	return over
}

// rested takes what the rest used, where that is at least so much time. The
// lock is held.
func (t *tally) rested(least time.Duration, at time.Time) (func(Spent), Spent) {
	idle := t.idle
	if t.rest == nil || idle.Wall < least || idle.Wall == 0 && idle.CPU == 0 {
		return nil, idle
	}
	t.idle = Spent{Began: at, PeakBytes: -1}
	return t.rest, idle
}

func tell(over []*metered) {
	for _, r := range over {
		if r.told != nil {
			r.told(r.estimate())
		}
	}
}

// within is how much of an execution lies between two times.
func (r *metered) within(from, to time.Time) time.Duration {
	if r.Began.After(from) {
		from = r.Began
	}
	if !r.ended.IsZero() && r.ended.Before(to) {
		to = r.ended
	}
	return max(0, to.Sub(from))
}

// estimate is what an execution used, the part of it that nobody measured as
// the part that somebody did. Where nobody did, it is not known.
func (r *metered) estimate() Spent {
	s := r.Spent
	switch {
	case r.counted <= 0:
		s.CPU, s.ByteSeconds = unknownCPU, -1
	case s.Wall > r.counted:
		more := float64(s.Wall) / float64(r.counted)
		s.CPU, s.ByteSeconds = time.Duration(float64(s.CPU)*more), s.ByteSeconds*more
	}
	if r.blind {
		s.ByteSeconds = -1
	}
	return s
}

// close measures a last time, if the sandbox is alive, and tells everything.
func (t *tally) close(alive bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.done = true
	if t.timer != nil && t.timer.Stop() {
		t.timer = nil
		t.all.Done()
	}
	t.mu.Unlock()
	t.all.Wait()
	if alive && t.measure != nil {
		t.measure()
	}
	t.mu.Lock()
	now := time.Now()
	for _, r := range t.runs {
		if r.ended.IsZero() { // its sandbox is ended under it
			r.ended = now
			r.Wall = now.Sub(r.Began)
		}
	}
	over := t.runs
	t.runs = nil
	rest, idle := t.rested(0, now)
	t.mu.Unlock()
	tell(over)
	if rest != nil {
		rest(idle)
	}
}
