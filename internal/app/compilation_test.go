package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// compiling is a candidate that compiles before its first start.
type compiling struct {
	*fakeEngine
	prepared bool
	prepares int
	err      error
}

func (c *compiling) Prepared(*sandbox.Program) bool { return c.prepared }
func (c *compiling) Prepare(context.Context, *sandbox.Program) error {
	c.prepares++
	c.prepared = c.err == nil
	return c.err
}

// TestPendingCompilation: only the engine that runs code compiles, once, and no engine
// is probed where there is nothing to compile.
func TestPendingCompilation(t *testing.T) {
	gate := authz.New(authz.Config{Policy: authz.Default()})
	for _, tt := range []struct {
		name     string
		first    *fakeEngine // nil: the engine is named
		its      *fakeEngine
		prepared bool
		want     int // compilations
		probes   int // of first
	}{
		{name: "named", its: reporting("wasm", byWasm), want: 1},
		{name: "prepared", its: reporting("wasm", byWasm), prepared: true},
		{name: "not usable", its: reporting("wasm", byWasm, broken)},
		{name: "not accepted", its: reporting("wasm", byContainer)},
		{name: "chosen", first: reporting("gvisor", byKernel, broken), its: reporting("wasm", byWasm), want: 1, probes: 1},
		{name: "not chosen", first: reporting("gvisor", byKernel), its: reporting("wasm", byWasm), probes: 1},
		{name: "chosen and prepared", first: reporting("gvisor", byKernel, broken), its: reporting("wasm", byWasm), prepared: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				its := &compiling{fakeEngine: tt.its, prepared: tt.prepared}
				c := &Core{app: &App{Life: t.Context(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, Gate: gate, Engine: its}
				if tt.first != nil {
					most := map[string]sandbox.Isolation{"wasm": byWasm}
					c.Engine, _ = choiceOf(byWasm, most, tt.first, its)
				}
				c.CompileAhead()
				synctest.Wait()
				if p := c.PendingCompilation(t.Context()); p != nil {
					t.Error("something is left to compile")
				}
				if its.prepares != tt.want {
					t.Errorf("got %d compilations, want %d", its.prepares, tt.want)
				}
				if tt.first != nil && tt.first.probes != tt.probes {
					t.Errorf("got %d probes of the first engine, want %d", tt.first.probes, tt.probes)
				}
			})
		})
	}
	failing := &compiling{fakeEngine: reporting("wasm", byWasm), err: errors.New("no")}
	c := &Core{app: &App{Life: t.Context()}, Gate: gate, Engine: failing}
	p := c.PendingCompilation(t.Context())
	if p == nil {
		t.Fatal("nothing is compiled")
	}
	if stage, _, _ := p.Progress(); stage != broker.Compiling {
		t.Errorf("the progress is %q, want %q", stage, broker.Compiling)
	}
	if <-p.Done(); !errors.Is(p.err, failing.err) {
		t.Errorf("got %v, want %v", p.err, failing.err)
	}
}
