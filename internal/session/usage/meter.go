// Package usage measures what a sandbox uses and divides it between the
// executions that ran in it and the time in between.
package usage

import (
	"runtime"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Usage is the resource use of one execution, or of an idle sandbox.
type Usage struct {
	Began time.Time
	Wall  time.Duration
	// CPU is processor time; negative is unknown.
	CPU time.Duration
	// ByteSeconds is memory multiplied by the time for which it was held;
	// negative is unknown.
	ByteSeconds float64
	PeakBytes   int64 // of the sandbox so far; negative is unknown
	// Open marks an interim report: a later one with the same Began replaces it.
	Open bool
}

// UnknownCPU stands for a processor time that could not be measured.
const UnknownCPU = time.Duration(-1)

const (
	// measureDelay is how long after an execution its sandbox is measured,
	// unless something else measures it first: many short executions share one
	// measurement.
	measureDelay = time.Second
	// idleInterval is the shortest time between two final reports of idle usage.
	idleInterval = 5 * time.Minute
	// interimInterval is the shortest time between two interim reports. With
	// the delay before a report reaches the disk, a crash of the program loses
	// at most two seconds.
	interimInterval = time.Second
)

// Meter divides what a sandbox used between its executions and its idle time.
// The path of a request only notes when code began and ended. The sandbox is
// measured afterwards, and what it used between two measurements is divided in
// proportion to the time that each execution took. Executions cannot have used
// more than all processors for all of that time; the remainder was used by the
// sandbox's start or by code that was left running, and counts as idle usage.
//
// It is safe for concurrent use.
type Meter struct {
	measure func() (sandbox.Usage, bool) // calls Add; nil: nothing can measure

	mu          sync.Mutex
	reportIdle  func(Usage) // nil: not wanted
	at          time.Time   // of the last measurement
	last        sandbox.Usage
	executions  []*Execution // without a measurement after their end
	idle        Usage        // not reported yet
	interimAt   time.Time    // of the last interim report
	timer       *time.Timer
	begun       bool // an execution has
	closed      bool
	measurement sync.WaitGroup // measurements that the meter itself started
}

// Execution is what a Meter knows about one execution.
type Execution struct {
	usage  Usage
	report func(Usage) // nil: not wanted
	ended  time.Time   // zero: it is running

	measured      time.Duration // the part of its time that was measured
	memoryUnknown bool
}

// NewMeter returns the meter of a sandbox that has used nothing yet. measure
// asks the engine and passes the answer to Add; nil where the engine cannot
// measure.
func NewMeter(measure func() (sandbox.Usage, bool)) *Meter {
	now := time.Now()
	return &Meter{measure: measure, at: now, interimAt: now, idle: Usage{Began: now, PeakBytes: -1}}
}

// OnIdle sets the function that receives idle usage. It must not block.
func (m *Meter) OnIdle(report func(Usage)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reportIdle = report
}

// Begin records that an execution begins. report, which may be nil, receives
// interim usage now and then while the execution runs, and its final usage
// once, perhaps much later. It must not block.
func (m *Meter) Begin(report func(Usage)) *Execution {
	e := &Execution{report: report, usage: Usage{Began: time.Now(), PeakBytes: -1}}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.executions = append(m.executions, e)
	if !m.begun && !m.closed && m.measure != nil {
		// Concurrent with the code: what was used until now was the sandbox's start.
		m.begun = true
		m.measurement.Go(func() { m.measure() })
	}
	return e
}

// End records that an execution has ended.
func (m *Meter) End(e *Execution) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !e.ended.IsZero() {
		return // Close came first, and reports it without holding the lock
	}
	e.ended = time.Now()
	e.usage.Wall = e.ended.Sub(e.usage.Began)
	m.schedule()
}

// Usage returns what is known about an execution so far.
func (m *Meter) Usage(e *Execution) Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.estimate()
}

// schedule makes sure that a measurement will follow. The lock is held.
func (m *Meter) schedule() {
	if m.timer == nil && !m.closed {
		m.measurement.Add(1)
		m.timer = time.AfterFunc(measureDelay, func() {
			defer m.measurement.Done()
			m.settle()
		})
	}
}

// settle measures the sandbox and reports the executions that have ended.
func (m *Meter) settle() {
	ok := false
	if m.measure != nil {
		_, ok = m.measure()
	}
	m.mu.Lock()
	m.timer = nil
	var ended []*Execution
	if !ok {
		ended = m.takeEnded(time.Now())
	} else if len(m.executions) > 0 && !m.executions[0].ended.IsZero() {
		m.schedule() // it ended during the measurement
	}
	m.mu.Unlock()
	reportAll(ended)
}

// Add records a measurement that was requested at that time.
func (m *Meter) Add(u sandbox.Usage, at time.Time) {
	m.mu.Lock()
	span := at.Sub(m.at)
	if span <= 0 || u.CPU < 0 {
		m.mu.Unlock()
		return
	}
	memory := float64(-1)
	if u.MemoryBytes >= 0 {
		memory = float64(u.MemoryBytes+max(0, m.last.MemoryBytes)) / 2
		if m.last.MemoryBytes <= 0 {
			memory = float64(u.MemoryBytes)
		}
	}
	var busy time.Duration
	for _, e := range m.executions {
		busy += e.within(m.at, at)
	}
	cpu := max(0, u.CPU-m.last.CPU)
	byExecutions := min(cpu, busy*time.Duration(runtime.NumCPU()))
	for _, e := range m.executions {
		if wall := e.within(m.at, at); wall > 0 {
			e.usage.CPU += time.Duration(float64(byExecutions) * float64(wall) / float64(busy))
			e.usage.ByteSeconds += memory * wall.Seconds()
			e.memoryUnknown = e.memoryUnknown || memory < 0
			e.measured += wall
		}
		e.usage.PeakBytes = u.PeakBytes
	}
	m.idle.CPU += cpu - byExecutions
	m.idle.Wall += max(0, span-busy)
	if memory < 0 {
		m.idle.ByteSeconds = -1
	} else if m.idle.ByteSeconds >= 0 {
		m.idle.ByteSeconds += memory * max(0, span-busy).Seconds()
	}
	m.idle.PeakBytes = u.PeakBytes
	m.at, m.last = at, u
	ended := m.takeEnded(at)
	reportIdle, idle := m.takeIdle(idleInterval, at)
	interim := m.interim(at)
	m.mu.Unlock()
	reportAll(ended)
	if reportIdle != nil {
		reportIdle(idle)
	}
	for _, report := range interim {
		report()
	}
}

// interim returns the interim reports that are due. The lock is held.
func (m *Meter) interim(at time.Time) (reports []func()) {
	if at.Sub(m.interimAt) < interimInterval {
		return nil
	}
	m.interimAt = at
	for _, e := range m.executions {
		if e.report == nil || !e.ended.IsZero() {
			continue // its final report follows soon
		}
		now := *e
		now.usage.Wall, now.usage.Open = max(0, at.Sub(e.usage.Began)), true
		reports = append(reports, func() { now.report(now.estimate()) })
	}
	if idle := m.idle; m.reportIdle != nil && idle.Wall > 0 {
		report := m.reportIdle
		idle.Open = true
		reports = append(reports, func() { report(idle) })
	}
	return reports
}

// takeEnded removes and returns the executions that had ended at that time. The
// lock is held.
func (m *Meter) takeEnded(at time.Time) []*Execution {
	var ended []*Execution
	running := m.executions[:0]
	for _, e := range m.executions {
		if e.ended.IsZero() || e.ended.After(at) {
			running = append(running, e)
		} else {
			ended = append(ended, e)
		}
	}
	clear(m.executions[len(running):])
	m.executions = running
	return ended
}

// takeIdle returns the idle usage and begins a new count, if at least that much
// time was idle. The lock is held.
func (m *Meter) takeIdle(least time.Duration, at time.Time) (func(Usage), Usage) {
	idle := m.idle
	if m.reportIdle == nil || idle.Wall < least || idle.Wall == 0 && idle.CPU == 0 {
		return nil, idle
	}
	m.idle = Usage{Began: at, PeakBytes: -1}
	return m.reportIdle, idle
}

func reportAll(ended []*Execution) {
	for _, e := range ended {
		if e.report != nil {
			e.report(e.estimate())
		}
	}
}

// within returns how much of an execution lies between two times.
func (e *Execution) within(from, to time.Time) time.Duration {
	if e.usage.Began.After(from) {
		from = e.usage.Began
	}
	if !e.ended.IsZero() && e.ended.Before(to) {
		to = e.ended
	}
	return max(0, to.Sub(from))
}

// estimate returns the usage of an execution. The part of its time that was not
// measured counts like the part that was; if nothing was measured, its usage is
// unknown.
func (e *Execution) estimate() Usage {
	u := e.usage
	switch {
	case e.measured <= 0:
		u.CPU, u.ByteSeconds = UnknownCPU, -1
	case u.Wall > e.measured:
		more := float64(u.Wall) / float64(e.measured)
		u.CPU, u.ByteSeconds = time.Duration(float64(u.CPU)*more), u.ByteSeconds*more
	}
	if e.memoryUnknown {
		u.ByteSeconds = -1
	}
	return u
}

// Close measures a last time, if the sandbox is alive, and reports everything.
// It may be called on a nil Meter.
func (m *Meter) Close(alive bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.closed = true
	if m.timer != nil && m.timer.Stop() {
		m.timer = nil
		m.measurement.Done()
	}
	m.mu.Unlock()
	m.measurement.Wait()
	if alive && m.measure != nil {
		m.measure()
	}
	m.mu.Lock()
	now := time.Now()
	for _, e := range m.executions {
		if e.ended.IsZero() { // its sandbox is destroyed while it runs
			e.ended = now
			e.usage.Wall = now.Sub(e.usage.Began)
		}
	}
	ended := m.executions
	m.executions = nil
	reportIdle, idle := m.takeIdle(0, now)
	m.mu.Unlock()
	reportAll(ended)
	if reportIdle != nil {
		reportIdle(idle)
	}
}
