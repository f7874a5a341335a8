package upstream

import (
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	long := strings.Repeat("é", 3000)
	for in, want := range map[string]string{
		"":                               "",
		"\n\na\r\nb\n\n":                 "a\nb",
		"1\n2\n3\n4\n":                   "2\n3\n4",
		"\x1b[1;31mred\x1b[0m \x07x\x00": "red x",
		"\x1bMup \u009b31mx":             "up 31mx",
		"\xffa":                          "\uFFFDa",
		long + "\nend":                   "end",
	} {
		if got := lastLines([]byte(in), 3, 100); got != want {
			t.Errorf("%.30q: %q, want %q", in, got, want)
		}
	}
	if got := lastLines([]byte(long), 3, 101); len(got) > 101 || !strings.HasSuffix(got, "é") {
		t.Errorf("%q", got)
	}
}
