package hub

import (
	"strings"
	"testing"
)

func TestIDsOfMessages(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true}, {"1000", "1e3", true}, {"9007199254740992", "9007199254740993", false}, {"1", `"1"`, false},
		{`"\u0061"`, `"a"`, true}, {strings.Repeat("9", 400), strings.Repeat("9", 399) + "8", false},
	} {
		if got := key([]byte(tt.a)) == key([]byte(tt.b)); got != tt.want {
			t.Errorf("%.50s and %.50s: got %v, want them equal: %v", tt.a, tt.b, got, tt.want)
		}
	}
	if got := parse([]byte("\xef\xbb\xbf" + `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`)); len(got) != 1 || !got[0].call() || string(got[0].id) != "1.5" {
		t.Errorf("got %+v, want the call behind the byte order mark", got)
	}
}
