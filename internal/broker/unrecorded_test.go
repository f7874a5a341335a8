package broker

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// TestUnrecorded: each client hears once, with its next result, that what happens is
// not recorded, and again when that has ended and begun anew.
func TestUnrecorded(t *testing.T) {
	p := newParts()
	var period uint64
	p.Unrecorded = func() uint64 { return period }
	b := p.broker(t) // without an engine: results say so, and notes come all the same
	notes := func(ctx context.Context, who string) int {
		r := b.as(who).Execute(ctx, Request{Principal: user, Submission: Submission{Code: "1"}})
		for _, n := range r.Notes {
			if strings.Contains(n, "/home") {
				t.Errorf("got the note %q, want no path", n)
			}
		}
		return len(r.Notes) - len(slices.DeleteFunc(slices.Clone(r.Notes), func(n string) bool { return n == unrecorded }))
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	for i, step := range []struct {
		period uint64
		ctx    context.Context
		who    string
		want   int
	}{
		{0, t.Context(), "ann", 0},
		{1, t.Context(), "ann", 1},
		{1, t.Context(), "ann", 0},
		{1, gone, "bob", 0}, // who does not read it
		{1, t.Context(), "bob", 1},
		{1, t.Context(), "bob", 0},
		{0, t.Context(), "ann", 0},
		{2, t.Context(), "ann", 1},
		{2, t.Context(), "new", 1},
		{0, t.Context(), "bob", 0},
		{3, t.Context(), "bob", 1},
	} {
		period = step.period
		if got := notes(step.ctx, step.who); got != step.want {
			t.Errorf("step %d, %s in period %d: got %d notes, want %d", i, step.who, step.period, got, step.want)
		}
	}
}

// TestUnrecordedLeavesResult: a result that is kept for later calls does not change.
func TestUnrecordedLeavesResult(t *testing.T) {
	p := newParts()
	p.Unrecorded = func() uint64 { return 1 }
	kept := &Result{Notes: make([]string, 1, 2)}
	if told := p.broker(t).as("ann").tellUnrecorded(t.Context(), kept); len(told.Notes) != 2 || len(kept.Notes) != 1 || kept.Notes[:2][1] != "" {
		t.Errorf("got %q and %q, want a note in a result of its own", told.Notes, kept.Notes[:2])
	}
}
