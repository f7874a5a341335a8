package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/image"
)

// TestImagesMoveNoCursor: what an image says of itself is shown, and does
// nothing to the terminal.
func TestImagesMoveNoCursor(t *testing.T) {
	var out, errs bytes.Buffer
	u := &ui{stdio: Stdio{Out: &out, Err: &errs}}
	for _, in := range []image.Info{
		{Python: &image.Python{Path: "/opt/\x1b[2J/python3", Major: 3, Minor: 13}},
		{Trouble: "/opt/\x1b[2J/python3: a program for another machine"},
	} {
		u.arrived(image.Record{Name: "docker.io/library/x:1"}, &image.Root{Info: in}, false)
	}
	if said := out.String() + errs.String(); strings.ContainsRune(said, '\x1b') || strings.Count(said, `\x1b[2J`) != 2 {
		t.Errorf("%q", said)
	}
}
