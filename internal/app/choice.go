package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// choosing bounds the probe of each candidate.
const choosing = 30 * time.Second

// Choice is the engine for the setting auto: the first of its candidates that can
// run here and meets the policy. A candidate that offers less is never chosen.
// While none meets the policy, the Choice reports what the first one that could be
// probed lacks, and probes all of them again when it is next used.
type Choice struct {
	candidates []sandbox.Engine // best first
	gate       *authz.Gate

	mu     sync.Mutex
	chosen sandbox.Engine  // nil until there is one
	near   *sandbox.Report // of the one that came nearest, where none is chosen
}

var _ sandbox.Engine = (*Choice)(nil)

// Verdict is the outcome for one candidate.
type Verdict struct {
	Engine string `json:"engine"`
	Chosen bool   `json:"chosen,omitempty"`
	Why    string `json:"why"`

	report *sandbox.Report
	ok     bool
}

// judge probes one candidate.
func (c *Choice) judge(ctx context.Context, b sandbox.Engine) Verdict {
	v := Verdict{Engine: b.Name()}
	ctx, cancel := context.WithTimeout(ctx, choosing)
	defer cancel()
	report, err := b.Probe(ctx)
	if err != nil {
		v.Why = "it could not be probed: " + err.Error()
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
	var short *authz.Violation
	decided := c.gate.Decide(authz.Local(""), authz.RunCode{Engine: report})
	if errors.As(decided.Reason, &short) {
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
	} else if decided.Effect != authz.Allow {
		v.Why = decided.Reason.Error()
		return v
	}
	v.ok = true
	v.Why = "isolation by " + report.Isolation.String() + ", as the policy demands"
	return v
}

// pick returns the chosen engine, or nil if no candidate is good enough.
func (c *Choice) pick(ctx context.Context) sandbox.Engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chosen != nil {
		return c.chosen
	}
	var judged []Verdict
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

// nearest returns the report of the first candidate that could be probed, which
// would be chosen if its problems were fixed, with the problems of the others.
func nearest(judged []Verdict) *sandbox.Report {
	best := slices.IndexFunc(judged, func(v Verdict) bool { return v.report != nil })
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

// Explain probes every candidate and returns why each is chosen or not.
func (c *Choice) Explain(ctx context.Context) []Verdict {
	chosen := c.pick(ctx)
	verdicts := make([]Verdict, len(c.candidates))
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

// Unwrap returns the chosen engine, for optional interfaces.
func (c *Choice) Unwrap() sandbox.Engine {
	ctx, cancel := context.WithTimeout(context.Background(), choosing)
	defer cancel()
	return c.pick(ctx)
}

// Name implements sandbox.Engine.
func (c *Choice) Name() string {
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

// Probe implements sandbox.Engine.
func (c *Choice) Probe(ctx context.Context) (*sandbox.Report, error) {
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

// Start implements sandbox.Engine. Nothing starts where no engine is good
// enough.
func (c *Choice) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	if b := c.pick(ctx); b != nil {
		return b.Start(ctx, spec)
	}
	return nil, &sandbox.Error{Op: "start", Backend: c.Name(), Kind: sandbox.ErrUnavailable, Err: errors.New("no engine here meets the policy: see `sallyport doctor`")}
}

// Attach implements sandbox.Engine.
func (c *Choice) Attach(ctx context.Context, h sandbox.Handle) (sandbox.Run, error) {
	for _, b := range c.candidates {
		if b.Name() == h.Backend {
			return b.Attach(ctx, h)
		}
	}
	return nil, &sandbox.Error{Op: "attach", Backend: c.Name(), Kind: sandbox.ErrGone}
}

// Close implements sandbox.Engine.
func (c *Choice) Close() error {
	var errs []error
	for _, b := range c.candidates {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}
