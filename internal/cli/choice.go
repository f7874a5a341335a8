package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/internal/policy"
	"sallyport/internal/sandbox"
)

// choosing bounds the choice of an engine: each that is asked has so long.
const choosing = 30 * time.Second

// choice is the engine that `auto` stands for: the first of its candidates
// that can run here and offers what the policy demands. None is ever chosen
// that offers less; where none offers enough, the choice stands for the first
// that could be examined, and says what it lacks. It is made when it is first
// needed, and made again while none was good enough.
type choice struct {
	candidates []sandbox.Backend // best first
	policy     *policy.Policy

	mu     sync.Mutex
	chosen sandbox.Backend // nil until there is one
	near   *sandbox.Report // of the one that came nearest, where none is chosen
}

var _ sandbox.Backend = (*choice)(nil)

// verdict is what became of one candidate.
type verdict struct {
	Engine string `json:"engine"`
	Chosen bool   `json:"chosen,omitempty"`
	Why    string `json:"why"`

	report *sandbox.Report
	ok     bool
}

// judge probes one candidate.
func (c *choice) judge(ctx context.Context, b sandbox.Backend) verdict {
	v := verdict{Engine: b.Name()}
	ctx, cancel := context.WithTimeout(ctx, choosing)
	defer cancel()
	report, err := b.Probe(ctx)
	if err != nil {
		v.Why = "it could not be examined: " + err.Error()
		return v
	}
	v.report = report
	if !report.Usable {
		v.Why = "it cannot run here"
		for _, f := range report.Findings {
			if f.Fatal {
				v.Why = f.Title
				if f.Remedy != "" {
					v.Why += " (to fix it: " + f.Remedy + ")"
				}
				break
			}
		}
		return v
	}
	var short *policy.Violation
	if err := c.policy.Check(report); errors.As(err, &short) {
		var lacks []string
		for _, m := range short.Missing {
			remedy := "accept it with " + m.Accept
			if m.Measure != "" {
				remedy = "not measured yet: " + m.Measure
			}
			lacks = append(lacks, fmt.Sprintf("%s is %s, the policy demands %s (%s)", m.What, m.Has, m.Wants, remedy))
		}
		v.Why = strings.Join(lacks, "; ")
		return v
	} else if err != nil {
		v.Why = err.Error()
		return v
	}
	v.ok = true
	v.Why = "isolation by " + report.Isolation.String() + ", as the policy demands"
	return v
}

// pick makes the choice.
func (c *choice) pick(ctx context.Context) sandbox.Backend {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chosen != nil {
		return c.chosen
	}
	var judged []verdict
	for _, b := range c.candidates {
		v := c.judge(ctx, b)
		if v.ok {
			c.chosen, c.near = b, nil
			return b
		}
		judged = append(judged, v)
	}
	c.near = nearest(judged)
	return nil
}

// nearest is the report of the first candidate that could be examined, for that is the
// one that would be chosen if what is wrong were fixed, with what is wrong with
// the others.
func nearest(judged []verdict) *sandbox.Report {
	best := slices.IndexFunc(judged, func(v verdict) bool { return v.report != nil })
	if best < 0 {
		return nil
	}
	out := *judged[best].report
	out.Findings = append([]sandbox.Finding{}, out.Findings...)
	for i, v := range judged {
		if i != best {
			out.Findings = append(out.Findings, sandbox.Finding{Title: v.Engine + " was not chosen", Detail: v.Why})
		}
	}
	return &out
}

// explain says of every candidate why it is chosen or not. It asks all of
// them.
func (c *choice) explain(ctx context.Context) []verdict {
	chosen := c.pick(ctx)
	verdicts := make([]verdict, len(c.candidates))
	var all sync.WaitGroup
	for i, b := range c.candidates {
		all.Go(func() { verdicts[i] = c.judge(ctx, b) })
	}
	all.Wait()
	for i, b := range c.candidates {
		v := &verdicts[i]
		v.Chosen = b == chosen
		if v.ok && !v.Chosen {
			v.Why = "not needed: " + v.Why
		}
	}
	return verdicts
}

// Unwrap gives the engine that was chosen, for what not every engine can do.
func (c *choice) Unwrap() sandbox.Backend {
	ctx, cancel := context.WithTimeout(context.Background(), choosing)
	defer cancel()
	return c.pick(ctx)
}

// Name implements sandbox.Backend.
func (c *choice) Name() string {
	if b := c.Unwrap(); b != nil {
		return b.Name()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.near != nil {
		return c.near.Backend
	}
	return c.candidates[0].Name()
}

// Probe implements sandbox.Backend.
func (c *choice) Probe(ctx context.Context) (*sandbox.Report, error) {
	if b := c.pick(ctx); b != nil {
		return b.Probe(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.near == nil {
		return c.candidates[0].Probe(ctx)
	}
	return c.near, nil
}

// Start implements sandbox.Backend. Nothing starts where no engine is good
// enough.
func (c *choice) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	if b := c.pick(ctx); b != nil {
		return b.Start(ctx, spec)
	}
	return nil, &sandbox.Error{Op: "start", Backend: c.Name(), Kind: sandbox.ErrUnavailable, Err: errors.New("no engine here can run code as the policy demands: see `sallyport doctor`")}
}

// Attach implements sandbox.Backend.
func (c *choice) Attach(ctx context.Context, h sandbox.Handle) (sandbox.Run, error) {
	for _, b := range c.candidates {
		if b.Name() == h.Backend {
			return b.Attach(ctx, h)
		}
	}
	return nil, &sandbox.Error{Op: "attach", Backend: c.Name(), Kind: sandbox.ErrGone}
}

// Close implements sandbox.Backend.
func (c *choice) Close() error {
	var errs []error
	for _, b := range c.candidates {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
