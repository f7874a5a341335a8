package settings

import (
	"slices"
	"testing"
)

func TestMayOf(t *testing.T) {
	elicit, sample, both := []string{MayElicit}, []string{MaySample}, []string{MayElicit, MaySample}
	for _, test := range []struct {
		what, name string
		may        []string
		want       []string
	}{
		{"the default", "x", []string{"elicit"}, elicit},
		{"an empty list", "x", nil, nil},
		{"both for all", "x", []string{"sample", "elicit"}, both},
		{"a name", "x", []string{"elicit", "x=sample"}, sample},
		{"all entries of a name", "x", []string{"x=sample", "elicit", "x=elicit"}, both},
		{"a pattern", "pg-1", []string{"pg-*=sample", "pg-1=elicit"}, both},
		{"a slash is no separator", "a/x/y", []string{"a/*=sample"}, sample},
		{"no pattern", "x", []string{"pg-*=sample"}, elicit},
		{"none for the rest", "x", []string{"none", "y=elicit"}, nil},
		{"none does not reach a name", "y", []string{"none", "y=elicit"}, elicit},
		{"none of a name", "x", []string{"elicit", "x=none"}, nil},
		{"none wins", "x", []string{"x=sample", "*=none"}, nil},
		{"twice", "x", []string{"x=elicit", "*=elicit"}, elicit},
	} {
		if got := (Servers{May: test.may}).MayOf(test.name); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q of %q: got %q, want %q", test.what, test.name, test.may, got, test.want)
		}
	}
	for text, want := range map[string]bool{
		"elicit": true, "none": true, "x=sample": true, "*=none": true, "": false, "x": false, "=sample": false, "x=": false, "x=roots": false, "[=sample": false,
	} {
		if got := isMay(text); got != want {
			t.Errorf("%q: got valid %t, want %t", text, got, want)
		}
	}
}

// TestMayCannotBeWidened: the variables and flags of a project's configuration let
// no server use the model, or use it more.
func TestMayCannotBeWidened(t *testing.T) {
	if _, err := Load(Sources{Home: t.TempDir(), Environ: map[string]string{"SALLYPORT_SERVERS_MAY": "sample"}}); err == nil {
		t.Error("SALLYPORT_SERVERS_MAY: got no error, want one: there is no such variable")
	}
	if _, err := Load(Sources{Home: t.TempDir(), Flags: []Flag{{Name: "--set", Key: "servers.may", Value: "sample"}}}); err == nil {
		t.Error("--set servers.may: got no error, want one")
	}
	for value, want := range map[string]int{"100": 10, "5": 5, "0": 0} {
		s, err := Load(Sources{Home: t.TempDir(), Environ: map[string]string{"SALLYPORT_SERVERS_SAMPLING_CALLS": value}})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Servers.Sampling.Calls; got != want {
			t.Errorf("SALLYPORT_SERVERS_SAMPLING_CALLS=%s: got %d calls, want %d", value, got, want)
		}
	}
	s, err := Load(Sources{Home: t.TempDir(), Environ: map[string]string{"SALLYPORT_SERVERS_SAMPLING_TOKENS": "20001"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Servers.Sampling.Tokens; got != 20000 {
		t.Errorf("SALLYPORT_SERVERS_SAMPLING_TOKENS=20001: got %d tokens, want 20000", got)
	}
}
