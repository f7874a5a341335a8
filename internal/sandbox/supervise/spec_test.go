package supervise

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestEnvironment(t *testing.T) {
	got := Environment([]string{"PATH=/bin", "A=1"}, []string{"LANG=x", "PATH=/usr/bin"}, Variables(map[string]string{"B": "", "A": "2=2"}))
	if diff := cmp.Diff([]string{"PATH=/usr/bin", "A=2=2", "LANG=x", "B="}, got); diff != "" {
		t.Errorf("Environment (-want +got):\n%s", diff)
	}
}

func TestCheckSpec(t *testing.T) {
	program := &sandbox.Program{Files: fstest.MapFS{}, Argv: []string{"a"}}
	for want, spec := range map[string]*sandbox.Spec{
		"":           {ID: "a", Program: program, Files: []sandbox.File{{Path: "f", Data: make([]byte, maxFiles)}}},
		"no program": {ID: "a"},
		"files of 16777217 bytes together; at most 16777216": {ID: "a", Program: program, Files: []sandbox.File{{Path: "f", Data: make([]byte, maxFiles+1)}}},
	} {
		got := ""
		if err := CheckSpec(spec); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
