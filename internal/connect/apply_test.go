package connect_test

import (
	"errors"
	"testing"

	"github.com/sallyport/sallyport/internal/connect"
)

// TestPrecondition: if a file has changed after the diff was made, nothing is
// written; and what was written before a file that cannot be is restored.
func TestPrecondition(t *testing.T) {
	m, journal := place(t)
	a, b := target(t, m, "cursor", false), target(t, m, "kiro", false)
	changes := []connect.Change{install(t, m, a), install(t, m, b)}
	put(t, b.File, "{}", 0o600)
	if _, err := journal.Apply("g", "install", changes); !errors.Is(err, connect.ErrChanged) {
		t.Fatalf("got %v, want ErrChanged", err)
	}
	if exists(a.File) || read(t, b.File) != "{}" {
		t.Errorf("%s exists: %v; %s is %q", a.File, exists(a.File), b.File, read(t, b.File))
	}

	// Nothing has changed when it begins; then kiro's file is written twice.
	again := install(t, m, b)
	changes = []connect.Change{install(t, m, a), again, again}
	if _, err := journal.Apply("g", "install", changes); !errors.Is(err, connect.ErrChanged) {
		t.Fatalf("got %v, want ErrChanged", err)
	}
	if exists(a.File) || read(t, b.File) != "{}" {
		t.Errorf("not restored: %s exists: %v; %s is %q", a.File, exists(a.File), b.File, read(t, b.File))
	}
	if left, err := journal.Dir.List(); err != nil || len(left) != 0 {
		t.Errorf("left: %v (%v), want nothing", left, err)
	}
}
