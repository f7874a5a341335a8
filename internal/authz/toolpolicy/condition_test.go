package toolpolicy_test

import (
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// TestNumbers: an integer that a double does not hold cannot be judged.
func TestNumbers(t *testing.T) {
	denying, _ := rules(t, config(`- {if: 'args.n == 0.5', action: deny}`))
	allowing, _ := rules(t, config("- {if: 'args.n != 0.5', action: allow}\n- {action: ask}"))
	is, _ := rules(t, config(`- {if: 'args.n == 9007199254740992', action: deny}`))
	for _, tt := range []struct {
		number string
		judged bool
	}{
		{"0", true},
		{"-0", true},
		{"-0.0", true},
		{"0e99999999999999999999", true},
		{"1.25", true},
		{"0.1", true},
		{"0.30000000000000000000000000000001", true}, // no double is exact here, and no server has more
		{"1e-99999999999999999999", true},
		{"9007199254740992", true},
		{"-9007199254740992", true},
		{"9007199254740994", true},
		{"9223372036854775808", true},
		{"18446744073709551616", true},
		{"1e22", true},
		{"12345678.9e1", true},
		{"1" + strings.Repeat("0", 22), true},

		{"9007199254740993", false},
		{"-9007199254740993", false},
		{"9223372036854775807", false},
		{"-9223372036854775807", false},
		{"18446744073709551615", false},
		{"100000000000000001", false},
		{"100000000000000001.0", false},
		{"1.00000000000000001e17", false},
		{"1000000000000000010e-1", false},
		{"9007199254740993.0E0", false},
		{"1e23", false},
		{"1" + strings.Repeat("0", 23), false},
		{"1e308", false},
		{"1e309", false},
		{"-1e99999999999999999999", false},
		{"01", false},
		{"+1", false},
		{"0x10", false},
		{"Infinity", false},
		{"NaN", false},
	} {
		for _, args := range []string{`{"n":` + tt.number + `}`, `{"n":1,"other":[{"m": ` + tt.number + " }]}"} {
			x := call("fs", "x", args, tool.Annotations{})
			want := [2]string{"deny config.yaml:3", "ask config.yaml:4"}
			if tt.judged {
				want = [2]string{"allow profile open", "allow config.yaml:3"}
			}
			if got := [2]string{decide(denying, me, x), decide(allowing, me, x)}; got != want {
				t.Errorf("%.60s: got %q, want %q", args, got, want)
			}
		}
	}
	for number, want := range map[string]string{
		"9007199254740992": "deny config.yaml:3", "9007199254740992.0": "deny config.yaml:3", "9.007199254740992e15": "deny config.yaml:3",
		"9007199254740993": "deny config.yaml:3", "9007199254740991": "allow profile open",
	} {
		if got := decide(is, me, call("fs", "x", `{"n":`+number+`}`, tool.Annotations{})); got != want {
			t.Errorf("%s: got %q, want %q", number, got, want)
		}
	}
}
