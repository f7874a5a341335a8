//go:build unix

package broker

import (
	"context"
	"sync/atomic"
	"testing"

	"sallyport/internal/sandbox"
	"sallyport/internal/sandbox/fake"
)

// engine is the fake engine, which runs the real guest, with counters and with
// answers that a test can change.
type engine struct {
	sandbox.Backend
	starts, probes atomic.Int64
	failStart      error                 // what Start answers, if not nil
	report         func(*sandbox.Report) // changes what Probe answers
}

func newEngine(t testing.TB, options fake.Options) *engine {
	t.Helper()
	e := &engine{Backend: fake.New(options)}
	if report, err := e.Backend.Probe(t.Context()); err != nil || !report.Usable {
		t.Skipf("the fake engine cannot run here: %+v, %v", report, err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (e *engine) Probe(ctx context.Context) (*sandbox.Report, error) {
	e.probes.Add(1)
	report, err := e.Backend.Probe(ctx)
	if e.report != nil && err == nil {
		e.report(report)
	}
	return report, err
}

func (e *engine) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	e.starts.Add(1)
	if e.failStart != nil {
		return nil, e.failStart
	}
	return e.Backend.Start(ctx, spec)
}
