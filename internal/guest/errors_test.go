package guest

import (
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

func TestDiedSaysHow(t *testing.T) {
	for want, d := range map[string]*Died{
		"the sandbox is gone":                              {},
		"the interpreter ended with status 3":              died(wire.Exit{Code: 3}),
		"the interpreter was ended by signal 9 (killed)":   died(wire.Exit{Signal: 9}),
		"the sandbox is gone: no such file or directory":   {Diagnostics: "no such file or directory"},
		"the interpreter ended with status 70: Traceback…": {Known: true, Code: 70, Diagnostics: "Traceback…"},
	} {
		if d.Error() != want {
			t.Errorf("%q, want %q", d.Error(), want)
		}
	}
}
