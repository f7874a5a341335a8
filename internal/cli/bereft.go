package cli

import (
	"context"
	"sync"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/mcpserver"
)

// bereft says once that the client's default session began anew, because it was
// lost with another hub.
type bereft struct {
	mcpserver.Executor
	mu   sync.Mutex
	told bool
}

// Submit implements mcpserver.Executor.
func (b *bereft) Submit(req broker.Request) func(context.Context) *broker.Result {
	run := b.Executor.Submit(req)
	if req.Session != "" && req.Session != broker.DefaultSession || req.Backend != "" {
		return run
	}
	return func(ctx context.Context) *broker.Result {
		r := run(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.told || r.StateLost != "" || r.Status == broker.ValidationError {
			return r
		}
		b.told = true
		with := *r
		with.StateLost = "the process that had it, Sallyport's hub, ended; see 'sallyport hub logs'"
		return &with
	}
}
