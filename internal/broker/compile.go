package broker

import (
	"context"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// Compiling is what an execution does while its engine prepares: see
// [sandbox.Preparer].
const Compiling = "compiling Python, once on this machine"

// prepareEngine waits until the engine is prepared, where the session needs a sandbox.
// That may take longer than a sandbox may take to start, and no time of the code. What
// goes wrong is for the start to report, which tries again.
func (x *execution) prepareEngine(ctx context.Context) error {
	if x.session.Running() {
		return nil
	}
	engine, ok := sandbox.As[sandbox.Preparer](x.session.Engine())
	program := x.broker.config.Template.Program
	if !ok || engine.Prepared(program) {
		return nil
	}
	x.stage.Store(preparing)
	_ = engine.Prepare(ctx, program)
	x.stage.Store(queued)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
