//go:build unix

package container

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// TestGivenUpStart: a client that was given up may have asked for a container
// that is not there yet: the program's mark stays for whoever sweeps.
func TestGivenUpStart(t *testing.T) {
	f := newFake(t)
	b := f.backend(t)
	f.open(t, b, "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.undo(ctx, namePrefix+b.instance.id+"-two")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := f.opts.State.List()
	if err != nil || !slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, instanceSuffix) }) {
		t.Errorf("no mark is left: %v, %v", names, err)
	}
}
