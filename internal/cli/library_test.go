package cli

import (
	"slices"
	"testing"

	"sallyport/internal/settings"
	"sallyport/internal/upstream/definitions"
)

// TestSourcesAgree: the sources that the settings know are those that there
// are, in the same order.
func TestSourcesAgree(t *testing.T) {
	if a, b := settings.ServerSources(), definitions.SourceNames(); !slices.Equal(a, b) {
		t.Errorf("the settings know %v, there are %v", a, b)
	}
}

func TestEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"a b\n  c": "a b\n  c", "x\U000E0101y": `x\u{e0101}y`, "\x1b[2J\r": `\u001b[2J\u000d`, "\u202eevil\u200b": `\u202eevil\u200b`, "ü漢": "ü漢", "\t": `\u0009`,
	} {
		if got := escaped(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
