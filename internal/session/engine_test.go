package session

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// changing stands for the first of its engines, and from some moment on for the second.
type changing struct {
	engines [2]named
	second  atomic.Bool
}

func newChanging() *changing {
	return &changing{engines: [2]named{{newSaving(), "first"}, {newSaving(), "second"}}}
}

func (c *changing) Unwrap() sandbox.Engine {
	if c.second.Load() {
		return c.engines[1]
	}
	return c.engines[0]
}
func (c *changing) Name() string { return c.Unwrap().Name() }
func (c *changing) Probe(ctx context.Context) (*sandbox.Report, error) {
	return c.Unwrap().Probe(ctx)
}
func (c *changing) Start(ctx context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	return c.Unwrap().Start(ctx, spec)
}
func (c *changing) Attach(ctx context.Context, h sandbox.Handle) (sandbox.Run, error) {
	return c.Unwrap().Attach(ctx, h)
}
func (c *changing) Close() error { return nil }

// The engine may change while a set exists. No state reaches an engine that did not
// make it.
func TestEngineChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newChanging()
		open, _, _ := ownersSet(t, e.engines[0].saving)
		set := open()
		defer set.Close()
		template := &Template{Engine: e}
		session := func(key Key) *Session { return keyed(t, set, key, template) }
		early, named, own, running := session(Key{Name: "early"}), session(Key{Name: "named"}), session(Key{Name: DefaultName, Client: "1"}), session(Key{Name: "running"})
		for _, s := range []*Session{named, own, running} {
			if out := exec(t, s, "set x 1"); out.Engine != "first" {
				t.Errorf("%s ran in %q, want first", s.Key(), out.Engine)
			}
		}
		for _, s := range []*Session{named, own} {
			if err := s.Suspend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		e.second.Store(true)

		// One that was made before, and had no sandbox, is saved and restored by the second.
		if out := exec(t, early, "set x 2"); out.Engine != "second" {
			t.Errorf("early ran in %q, want second", out.Engine)
		}
		if err := early.Suspend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out := exec(t, early, "get x"); out.Stdout.Head != "2" || out.Lost != "" {
			t.Errorf("early: got %q (lost: %q), want 2", out.Stdout.Head, out.Lost)
		}
		// One with a name keeps its state for the first.
		if _, err := named.Exec(t.Context(), named.Enter(), Request{Submission: Submission{Code: "get x", Timeout: time.Second}}); !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), "suspended by engine first, and this one is second") {
			t.Errorf("named: got %v, want ErrTemplate with both engines", err)
		}
		// A client's own begins anew and says why.
		if out := exec(t, own, "get x"); out.Stdout.Head != "" || !strings.Contains(out.Lost, "suspended by engine first, and this one is second") {
			t.Errorf("own: got %q (lost: %q), want a fresh one with the reason", out.Stdout.Head, out.Lost)
		}
		// One that runs goes on, and is not saved with what the second says of its sandboxes.
		if err := running.Suspend(t.Context()); err == nil || !strings.Contains(err.Error(), "engine first started the sandbox") {
			t.Errorf("suspending: got %v, want the reason why not", err)
		}
		if out := exec(t, running, "get x"); out.Stdout.Head != "1" || out.Engine != "first" {
			t.Errorf("running: got %q in %q, want 1 in first", out.Stdout.Head, out.Engine)
		}
		if got := e.engines[1].restored; got != 1 {
			t.Errorf("the second engine restored %d sandboxes, want only its own", got)
		}
		e.second.Store(false)
		if out := exec(t, named, "get x"); out.Stdout.Head != "1" || out.Lost != "" {
			t.Errorf("named, again in the first: got %q (lost: %q), want 1", out.Stdout.Head, out.Lost)
		}
	})
}
