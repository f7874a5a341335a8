package broker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"sallyport/internal/carbon"
	"sallyport/internal/runs"
	"sallyport/internal/session"
)

// An Accountant keeps account of what code uses. All methods are safe for
// concurrent use. None but Footprint and Ran is on the path of an answer; the
// others must not block.
type Accountant interface {
	// Executing is told now and then what an execution used that goes on. It
	// is not told after Executed.
	Executing(Execution)

	// Executed is told once of every execution of code in a sandbox, when it
	// is known what it used: up to seconds after its answer.
	Executed(Execution)

	// Rested is told what a session's sandbox used while no code of a request
	// ran: its start, what code left running, the memory of its variables. One
	// that is Open is followed by others of the same Began, which take its place.
	Rested(session string, spent session.Spent)

	// Footprint is what a local execution comes to, for its result; nil:
	// there is nothing to say. It is only asked of executions that were
	// measured before their answer.
	Footprint(session.Spent) *carbon.Footprint

	// Ran is told of a run on an engine without a channel that has ended, as
	// often as anybody learns of it; it counts once. It returns what the run
	// comes to, or nil.
	Ran(*runs.Record) *carbon.Footprint
}

// Execution is one execution of code in a sandbox, as an Accountant learns it.
type Execution struct {
	ID      string // of the request
	Session string
	Servers []string // that it was granted
	File    string   // the script, where it was one
	Code    string
	Status  Status
	Began   time.Time
	Spent   session.Spent
}

// bill is an execution that is to be accounted. What it used and how it ended
// become known in either order.
type bill struct {
	to Accountant

	mu    sync.Mutex
	e     Execution
	ready int
}

// bill is for an execution; nil where nobody keeps account.
func (x *execution) bill() *bill {
	if x.broker.config.Accountant == nil {
		return nil
	}
	e := Execution{ID: x.req.RequestID, Session: x.session.Name(), Code: x.req.Code, Began: time.Now()}
	if x.req.Script {
		e.File = x.req.Filename
	}
	return &bill{to: x.broker.config.Accountant, e: e}
}

// spent is session.Request.Spent.
func (b *bill) spent() func(session.Spent) {
	if b == nil {
		return nil
	}
	return func(s session.Spent) {
		if !s.Open {
			b.arrive(func(e *Execution) { e.Spent = s })
			return
		}
		b.mu.Lock()
		e := b.e
		b.mu.Unlock()
		e.Spent = s
		b.to.Executing(e)
	}
}

// answered notes the end of an execution of which code ran.
func (b *bill) answered(r *Result) {
	if b != nil {
		b.arrive(func(e *Execution) { e.Status, e.Servers = r.Status, r.Servers })
	}
}

func (b *bill) arrive(with func(*Execution)) {
	b.mu.Lock()
	with(&b.e)
	b.ready++
	whole := b.ready == 2
	b.mu.Unlock()
	if whole {
		b.to.Executed(b.e)
	}
}

// usage is what was measured of an execution, for its result.
func (b *Broker) usage(s session.Spent) *Usage {
	u := &Usage{PeakMemoryBytes: max(0, s.PeakBytes)}
	if s.CPU >= 0 {
		seconds := s.CPU.Seconds()
		u.CPUSeconds = &seconds
	}
	if b.config.Accountant != nil {
		u.Footprint = b.config.Accountant.Footprint(s)
	}
	return u
}

// line is a usage in a few words.
func (u *Usage) line() string {
	text := "CPU time unknown"
	if u.CPUSeconds != nil {
		text = brief(*u.CPUSeconds) + " s CPU"
	}
	f := u.Footprint
	switch {
	case f == nil:
		return text
	case f.Energy.Joules == nil:
		return text + ", energy unknown"
	}
	text += ", " + brief(*f.Energy.Joules) + " J"
	if e := f.Emissions; e != nil {
		text += ", " + brief(e.Grams*1000) + " mg CO2e"
	} else {
		text += ", CO2e unknown (set carbon.location)"
	}
	if len(f.Energy.Missing) > 0 {
		text += " (without " + strings.Join(f.Energy.Missing, ", ") + ": unknown)"
	}
	return text
}

// brief is a number with two significant digits.
func brief(f float64) string {
	if f >= 99.5 {
		return strconv.FormatFloat(math.Round(f), 'f', 0, 64)
	}
	return fmt.Sprintf("%.2g", f)
}

// short is a usage without how it was found.
func (u *Usage) short() *Usage {
	if u == nil || u.Footprint == nil {
		return u
	}
	s, f := *u, *u.Footprint
	f.Energy.CPU, f.Energy.Memory, f.Energy.GPU, f.Energy.PUE = nil, nil, nil, nil
	s.Footprint = &f
	return &s
}
