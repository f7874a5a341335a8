package cli

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/sallyport/sallyport/internal/settings"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
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
		"a b\n  c": "a b\n  c", "x\U000E0101y": `x\u{e0101}y`, "\x1b[2J\r": `\u001b[2J\u000d`, "\u202eevil\u200b": `\u202eevil\u200b`, "ü漢": "ü漢", "\t": "\t",
	} {
		if got := escaped(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// JSON for a terminal means what it meant.
func TestPlainJSON(t *testing.T) {
	text := "{\"a\": \"\u009b2J\u202e\u200b\u007f\U000E0041 \U0001F468\u200D\U0001F469 grün\"}\n"
	got := plainJSON(text)
	if want := "{\"a\": \"\\u009b2J\\u202e\\u200b\\u007f\\udb40\\udc41 \U0001F468\u200D\U0001F469 grün\"}\n"; got != want {
		t.Errorf("%q", got)
	}
	var before, after any
	if err := errors.Join(json.Unmarshal([]byte(text), &before), json.Unmarshal([]byte(got), &after)); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("%q became %q: %v", before, after, err)
	}
}

// What code asks for is shown without the escapes that it chose.
func TestPlainly(t *testing.T) {
	raw := json.RawMessage(`{"\u0063ommand":"\u0073h","args":["-c","\u0063url <x>\u001b"],"n":12345678901234567890}`)
	if got := plainly(raw); got != `{"args":["-c","curl <x>\u001b"],"command":"sh","n":12345678901234567890}` {
		t.Error(got)
	}
}
