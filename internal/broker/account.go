package broker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/batch/runs"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/session/usage"
	"github.com/sallyport/sallyport/internal/usage/carbon"
)

// An Accountant says what usage amounts to. It is on the path of an answer. What
// code used is published in the journal, too.
type Accountant interface {
	// Footprint returns what a local execution's usage amounts to, for its
	// result, or nil if there is nothing to report. It is called only for
	// executions that were measured before their answer.
	Footprint(usage.Usage) *carbon.Footprint

	// Ran receives a finished run of an engine without a channel, as often as
	// its end is noticed; it counts once. It returns the run's footprint, or
	// nil.
	Ran(*runs.Record) *carbon.Footprint
}

// origin returns the request as events of the journal name it.
func (r *Request) origin() journal.Origin { return r.Principal.Origin(time.Now()) }

// publishBegan publishes that the code is about to run.
func publishBegan(j *journal.Journal, req *Request) {
	if !j.Wants(journal.Executions) {
		return
	}
	e := &journal.ExecutionBegan{Origin: req.origin(), Code: req.Code, Engine: req.engine, Servers: req.Servers}
	if req.Script {
		e.File = req.Filename
	}
	e.Waited = e.Time.Sub(req.submitted)
	j.Publish(e)
}

// ended publishes the answer to a request.
func (b *Broker) ended(req *Request, r *Result, took time.Duration) {
	if !b.config.Journal.Wants(journal.Executions) {
		return
	}
	e := &journal.ExecutionEnded{
		Origin: req.origin(), Status: string(r.Status), ExitCode: r.ExitCode, Error: r.Error, StateLost: r.StateLost, OutOfMemory: r.OutOfMemory,
		Took: took, Engine: req.engine,
	}
	for _, l := range r.Stdout {
		e.Stdout += len(l) + 1
	}
	for _, l := range r.Stderr {
		e.Stderr += len(l) + 1
	}
	b.config.Journal.Publish(e)
}

// pendingUsage is an execution whose usage is still to be published. What it used
// and how it ended become known in either order.
type pendingUsage struct {
	to *journal.Journal

	mu    sync.Mutex
	e     journal.Used
	known int // of usage and end
}

// pendingUsage returns nil where no one wants to know.
func (x *execution) pendingUsage() *pendingUsage {
	if !x.broker.config.Journal.Wants(journal.Usages) {
		return nil
	}
	p := &pendingUsage{to: x.broker.config.Journal, e: journal.Used{Kind: journal.ByExecution, Origin: x.req.origin(), Code: x.req.Code}}
	p.e.Session = x.session.Key().Label()
	if x.req.Script {
		p.e.File = x.req.Filename
	}
	return p
}

// report returns the function for session.Request.OnUsage.
func (p *pendingUsage) report() func(usage.Usage) {
	if p == nil {
		return nil
	}
	return func(u usage.Usage) {
		if !u.Open {
			p.complete(func(e *journal.Used) { e.Usage = u })
			return
		}
		p.mu.Lock()
		e := p.e
		p.mu.Unlock()
		e.Usage = u
		p.to.Publish(&e)
	}
}

// answered notes how the execution ended.
func (p *pendingUsage) answered(r *Result) {
	if p != nil {
		p.complete(func(e *journal.Used) { e.Failed, e.Servers = r.Status != Success, r.Servers })
	}
}

// complete fills in one half of the execution, and publishes it when it has both.
func (p *pendingUsage) complete(set func(*journal.Used)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set(&p.e)
	p.known++
	if p.known == 2 {
		e := p.e
		p.to.Publish(&e)
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
