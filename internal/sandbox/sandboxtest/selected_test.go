//go:build linux

package sandboxtest

import (
	"slices"
	"testing"
)

// Names choose attempts; one that names none, or is there twice, is an error.
func TestSelected(t *testing.T) {
	if all, err := selected(nil); err != nil || len(all) != len(Catalogue()) {
		t.Errorf("without names: got %d attempts, %v; want all %d", len(all), err, len(Catalogue()))
	}
	some, err := selected([]string{"symlink", "tcp-loopback"})
	var got []string
	for _, a := range some {
		got = append(got, a.Name)
	}
	if want := []string{"tcp-loopback", "symlink"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, wrong := range [][]string{{"symlink", "no-such-attempt"}, {"symlink", "symlink"}} {
		if some, err := selected(wrong); err == nil {
			t.Errorf("%q: got %d attempts, want an error", wrong, len(some))
		}
	}
}
