package settings

import "testing"

func TestSharingOf(t *testing.T) {
	s := Servers{Sharing: []string{"x=client", "client", "pg-*=session", "x=all", "session", "a=b=all"}}
	for name, want := range map[string][2]string{
		"x": {ShareClient, ShareClient}, "pg-1": {ShareSession, ShareClient}, "a=b": {ShareAll, ShareClient}, "y": {"", ShareClient},
	} {
		named, rest := s.SharingOf(name)
		if got := [2]string{named, rest}; got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	if named, rest := (Servers{}).SharingOf("x"); named != "" || rest != ShareAll {
		t.Errorf("without entries: got %q, %q, want none, %q", named, rest, ShareAll)
	}
	for text, want := range map[string]bool{
		"client": true, "x=all": true, "*=session": true, "": false, "x": false, "=all": false, "x=": false, "x=both": false, "[=all": false,
	} {
		if got := isSharing(text); got != want {
			t.Errorf("%q: got valid %t, want %t", text, got, want)
		}
	}
}
