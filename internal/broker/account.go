package broker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/usage/carbon"
)

// An Accountant records what code uses. All methods are safe for concurrent
// use. Only Footprint and Ran are on the path of an answer; the others must not
// block.
type Accountant interface {
	// Executing receives interim usage of a running execution now and then,
	// and never after Executed.
	Executing(Execution)

	// Executed receives every execution of code in a sandbox once, when its
	// usage is known: up to seconds after its answer.
	Executed(Execution)

	// Footprint returns what a local execution's usage amounts to, for its
	// result, or nil if there is nothing to report. It is called only for
	// executions that were measured before their answer.
	Footprint(usage.Usage) *carbon.Footprint

	// Ran receives a finished run of an engine without a channel, as often as
	// its end is noticed; it counts once. It returns the run's footprint, or
	// nil.
	Ran(*runs.Record) *carbon.Footprint
}

// Execution is one execution of code in a sandbox, as an Accountant receives it.
type Execution struct {
	ID      string // of the request
	Session string
	Servers []string // that it was granted
	File    string   // the script, where it was one
	Code    string
	Status  Status
	Began   time.Time
	Usage   usage.Usage
}

// pendingUsage is an execution that is still to be reported to the accountant.
// What it used and how it ended become known in either order.
type pendingUsage struct {
	to Accountant

	mu    sync.Mutex
	e     Execution
	known int // of usage and end
}

// pendingUsage returns nil where there is no accountant.
func (x *execution) pendingUsage() *pendingUsage {
	if x.broker.config.Accountant == nil {
		return nil
	}
	e := Execution{ID: x.req.RequestID, Session: x.session.Key().Label(), Code: x.req.Code, Began: time.Now()}
	if x.req.Script {
		e.File = x.req.Filename
	}
	return &pendingUsage{to: x.broker.config.Accountant, e: e}
}

// report returns the function for session.Request.OnUsage.
func (p *pendingUsage) report() func(usage.Usage) {
	if p == nil {
		return nil
	}
	return func(u usage.Usage) {
		if !u.Open {
			p.complete(func(e *Execution) { e.Usage = u })
			return
		}
		p.mu.Lock()
		e := p.e
		p.mu.Unlock()
		e.Usage = u
		p.to.Executing(e)
	}
}

// answered notes how the execution ended.
func (p *pendingUsage) answered(r *Result) {
	if p != nil {
		p.complete(func(e *Execution) { e.Status, e.Servers = r.Status, r.Servers })
	}
}

// complete fills in one half of the execution, and reports it when it has both.
func (p *pendingUsage) complete(set func(*Execution)) {
	p.mu.Lock()
	set(&p.e)
	p.known++
	whole := p.known == 2
	p.mu.Unlock()
	if whole {
		p.to.Executed(p.e)
	}
}

// usage is what was measured of an execution, for its result.
func (b *Broker) usage(s usage.Usage) *Usage {
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
