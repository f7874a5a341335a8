package broker

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
)

func TestFolded(t *testing.T) {
	warning := "a warning about a font that is not there"
	for _, tt := range []struct {
		name      string
		raw, want Result
		lost      string
	}{
		{"nothing", Result{Status: Success}, Result{Status: Success}, ""},
		{"plain", Result{Stdout: []string{"a"}, Notes: []string{"n"}}, Result{Stdout: []string{"a"}, Notes: []string{"n"}}, ""},
		{"escapes and repetition are no loss", Result{Stdout: []string{"\x1b[1ma\x1b[0m"}, Stderr: slices.Repeat([]string{warning}, 9)},
			Result{Stdout: []string{"a"}, Stderr: []string{warning, "[… 9 times in all …]"}}, ""},
		{"states", Result{Stdout: []string{"1%\r2%\r3%"}, Stderr: []string{"x\rz"}}, Result{Stdout: []string{"3%"}, Stderr: []string{"z"}}, "3 earlier states of lines that were written over"},
		{"between calls", Result{Notes: []string{"written: a\nb\rc"}}, Result{Notes: []string{"written: a\nc"}}, "1 earlier state of a line that was written over"},
		{"marks stay", Result{Stdout: []string{"1%\r2%\r", "[... 70 bytes left out ...]", "\x1b[2A\x1b[2Kend", "last"}},
			Result{Stdout: []string{"2%", "[... 70 bytes left out ...]", "end", "last"}}, "1 earlier state of a line that was written over"},
	} {
		before, _ := json.Marshal(tt.raw)
		got, lost := tt.raw.Folded()
		if !reflect.DeepEqual(*got, tt.want) || lost != tt.lost {
			t.Errorf("%s: got %+v and %q, want %+v and %q", tt.name, *got, lost, tt.want, tt.lost)
		}
		if after, _ := json.Marshal(tt.raw); string(after) != string(before) {
			t.Errorf("%s: the raw result was changed: %s", tt.name, after)
		}
	}
}
