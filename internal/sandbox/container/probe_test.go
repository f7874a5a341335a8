//go:build unix

package container

import (
	"errors"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// TestPromises: what an engine only says of itself is judged by a policy before
// there is an image to try. Nothing starts that turns out to have less.
func TestPromises(t *testing.T) {
	f := newFake(t)
	f.drop(t, "image")
	f.put(t, "pull", fakeImage)
	b := f.backend(t)
	in := good()
	in.Groups["memory.max"] = "max"
	b.keep(f.opts.Image, mustFacts(t), &image{ID: "sha256:f00", inspection: &inspection{inside: in}})
	rep, err := b.Probe(t.Context())
	if err != nil || !rep.Provisional || rep.Limits[sandbox.Memory].Enforcement != sandbox.Hard {
		t.Fatalf("%+v, %v", rep, err)
	}
	if run, err := b.Start(t.Context(), f.spec(t, "one")); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "memory is absent, not hard") {
		t.Fatalf("%v, %v", run, err)
	}
	b.keep(f.opts.Image, mustFacts(t), &image{ID: "sha256:f00", inspection: &inspection{inside: in}}) // a failure has it found out anew
	rep, err = b.Probe(t.Context())
	if err != nil || rep.Provisional || rep.Limits[sandbox.Memory].Enforcement != sandbox.Absent {
		t.Fatalf("%+v, %v", rep, err)
	}
	f.open(t, b, "two") // as whoever asks knows by now
}
