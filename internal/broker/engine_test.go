//go:build unix

package broker

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/fake"
	"github.com/sallyport/sallyport/internal/session"
)

// engine is the fake engine, which runs the real guest, with counters and with
// answers that a test can change.
type engine struct {
	sandbox.Engine
	starts, probes atomic.Int64
	failStart      error                 // what Start answers, if not nil
	report         func(*sandbox.Report) // changes what Probe answers
}

func newEngine(t testing.TB, options fake.Options) *engine {
	t.Helper()
	e := &engine{Engine: fake.New(options)}
	if report, err := e.Engine.Probe(t.Context()); err != nil || !report.Usable {
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
	report, err := e.Engine.Probe(ctx)
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
	without := *spec // a broker only passes folders on
	without.Mounts = nil
	return e.Engine.Start(ctx, &without)
}

// newBroker returns a broker with an engine of these tests and its servers, of
// parts that a test may change first.
func newBroker(t testing.TB, change func(*parts)) (*desk, *engine) {
	t.Helper()
	e := newEngine(t, fake.Options{})
	p := newParts()
	p.Template = &session.Template{Engine: e, Program: python.Program()}
	if change != nil {
		change(p)
	}
	return p.broker(t), e
}
