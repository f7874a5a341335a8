package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/settings"
)

// choosing bounds the probe of each candidate.
const choosing = 30 * time.Second

// Choice is the engine for the setting auto: of its candidates that can run here and
// meet the policy the one with the strongest isolation, and of equal ones the first.
// While none meets the policy, the Choice reports what the first one that could be
// probed lacks, and probes all of them again when it is next used.
//
// The chosen engine stays chosen, with one exception: where it fails to start a
// sandbox that any engine can start, and another candidate then starts it, that one is
// chosen. An engine that has started sandboxes before is only given up if its probe now
// fails, too.
type Choice struct {
	candidates []*candidate // preferred ones first
	gate       *authz.Gate
	log        *slog.Logger

	chosen    atomic.Pointer[candidate] // nil until there is one
	replacing sync.Mutex                // held while another engine is looked for

	mu   sync.Mutex      // not held during probes once an engine is chosen: all clients would wait
	near *sandbox.Report // of the one that came nearest, where none is chosen
}

var _ sandbox.Engine = (*Choice)(nil)

// candidate is an engine that may be chosen.
type candidate struct {
	sandbox.Engine
	// most is the strongest isolation that the engine may offer, as far as the settings
	// tell. An engine whose most is no stronger than what was found is not probed.
	most sandbox.Isolation

	// Guarded by Choice.mu:
	started bool   // it has started a sandbox whose guest got ready
	failed  string // how it failed, if another engine has taken its place; empty: it did not
}

// Verdict is the outcome for one candidate.
type Verdict struct {
	Engine string `json:"engine"`
	Chosen bool   `json:"chosen,omitempty"`
	Why    string `json:"why"`

	report *sandbox.Report
	ok     bool
}

// judge probes one candidate.
func (c *Choice) judge(ctx context.Context, b *candidate) Verdict {
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

// best returns the candidate to choose, or nil if none is good enough, and what it
// found. It does not consider those in without, and does not probe those that cannot
// be better than one that it has found.
func (c *Choice) best(ctx context.Context, without map[*candidate]string) (best *candidate, judged []Verdict) {
	var strongest sandbox.Isolation
	for _, b := range c.candidates {
		if _, out := without[b]; out || best != nil && b.most <= strongest {
			continue
		}
		v := c.judge(ctx, b)
		judged = append(judged, v)
		if v.ok && (best == nil || v.report.Isolation > strongest) {
			best, strongest = b, v.report.Isolation
		}
	}
	return best, judged
}

// pick returns the chosen engine, or nil if no candidate is good enough.
func (c *Choice) pick(ctx context.Context) *candidate {
	if b := c.chosen.Load(); b != nil {
		return b
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.chosen.Load(); b != nil {
		return b
	}
	best, judged := c.best(ctx, nil)
	if best == nil {
		c.near = nearest(judged)
		return nil
	}
	c.near = nil
	c.chosen.Store(best)
	if best.Name() == settings.EngineWasm {
		for _, v := range judged {
			if v.Engine == settings.EngineGVisor {
				c.log.Warn("code runs in the engine wasm, without C extensions and other processes, because gVisor cannot run here: 'sallyport doctor' says why")
				c.log.Info("gVisor cannot run here", "reason", v.Why)
			}
		}
	}
	return best
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
	var now *sandbox.Report // of the chosen one, unless its probe failed this time
	for i, b := range c.candidates {
		if b == chosen {
			now = verdicts[i].report
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, b := range c.candidates {
		v := &verdicts[i]
		v.Chosen = b == chosen
		switch {
		case b.failed != "":
			v.Why = b.failed
		case !v.ok || v.Chosen:
		case now != nil && v.report.Isolation > now.Isolation:
			v.Why = "isolation by " + v.report.Isolation.String() + ", which only a probe shows: set engine: " + v.Engine + " to use it"
		default:
			v.Why = "not needed: " + v.Why
		}
	}
	return verdicts
}

// Unwrap returns the chosen engine, for optional interfaces.
func (c *Choice) Unwrap() sandbox.Engine {
	ctx, cancel := context.WithTimeout(context.Background(), choosing)
	defer cancel()
	b := c.pick(ctx)
	if b == nil {
		return nil
	}
	if r, ok := sandbox.As[sandbox.Restorer](b.Engine); ok {
		return &restoring{b.Engine, r, func() { c.works(b) }}
	}
	return b.Engine
}

// restoring is a chosen engine that tells when it has restored a sandbox, which
// proves that it starts some.
type restoring struct {
	sandbox.Engine
	restorer sandbox.Restorer
	works    func()
}

// Restore implements sandbox.Restorer.
func (r *restoring) Restore(ctx context.Context, spec *sandbox.Spec, image sandbox.Image) (sandbox.Run, error) {
	run, err := r.restorer.Restore(ctx, spec, image)
	if err == nil {
		r.works()
	}
	return run, err
}

// Binding implements sandbox.Restorer.
func (r *restoring) Binding(ctx context.Context, spec *sandbox.Spec) (string, error) {
	return r.restorer.Binding(ctx, spec)
}

// Unwrap returns the engine itself.
func (r *restoring) Unwrap() sandbox.Engine { return r.Engine }

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
	b := c.pick(ctx)
	if b == nil {
		return nil, &sandbox.Error{Op: "start", Backend: c.Name(), Kind: sandbox.ErrUnavailable, Err: errors.New("no engine here meets the policy: see `sallyport doctor`")}
	}
	run, err := b.Start(ctx, spec)
	if err != nil && ctx.Err() == nil && unfit(err) && plain(spec) {
		return c.replace(ctx, b, spec, err)
	}
	return run, err
}

// Works tells that the guest of a run got ready, which proves that its engine starts
// sandboxes.
func (c *Choice) Works(run sandbox.Run) {
	for _, b := range c.candidates {
		if b.Name() == run.Handle().Backend {
			c.works(b)
		}
	}
}

// works records that a candidate has started a sandbox.
func (c *Choice) works(b *candidate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.started = true
}

// plain reports whether a sandbox has nothing that only some of the sessions have. A
// failure to start one that has may be the fault of what it has: an image, an archive
// or a folder.
func plain(spec *sandbox.Spec) bool {
	return spec.Root.Image == "" && spec.Root.Packages == "" && len(spec.Mounts) == 0
}

// unfit reports whether the error of a start is a reason to try another engine. It is
// not one where the machine lacks something for a moment.
func unfit(err error) bool {
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EAGAIN} {
		if errors.Is(err, passing) {
			return false
		}
	}
	return errors.Is(err, sandbox.ErrStart) || errors.Is(err, sandbox.ErrUnavailable)
}

// replace starts the sandbox that the chosen engine b failed to start. The candidate
// that starts it is chosen from then on. If none does, b stays chosen and failure is
// the error.
func (c *Choice) replace(ctx context.Context, b *candidate, spec *sandbox.Spec, failure error) (sandbox.Run, error) {
	c.replacing.Lock()
	defer c.replacing.Unlock()
	if ctx.Err() != nil {
		return nil, failure
	}
	if now := c.chosen.Load(); now != b { // a concurrent start has chosen it
		return now.Start(ctx, spec)
	}
	without := map[*candidate]string{b: broke(failure)}
	c.mu.Lock()
	before := b.started
	for _, other := range c.candidates {
		if other.failed != "" {
			without[other] = other.failed
		}
	}
	c.mu.Unlock()
	if before && c.judge(ctx, b).ok {
		return nil, failure
	}
	for {
		next, _ := c.best(ctx, without)
		if next == nil || ctx.Err() != nil {
			return nil, failure
		}
		run, err := next.Start(ctx, spec)
		if err != nil {
			c.log.Debug("no engine to take its place", "engine", next.Name(), "error", err)
			if without[next] = ""; unfit(err) {
				without[next] = broke(err)
			}
			continue
		}
		c.mu.Lock()
		worked := b.started && !before
		if !worked {
			for other, why := range without {
				other.failed = why
			}
			c.chosen.Store(next)
		}
		c.mu.Unlock()
		if worked { // a concurrent start has shown it
			_ = run.Destroy(ctx)
			return nil, failure
		}
		c.log.Warn("the engine "+b.Name()+" failed to start, so code runs in the engine "+next.Name()+" from now on", "reason", without[b])
		return run, nil
	}
}

// broke says how an engine failed to start.
func broke(err error) string {
	return "it was usable by its probe, but failed to start: " + err.Error()
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
