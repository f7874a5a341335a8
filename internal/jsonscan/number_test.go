package jsonscan

import (
	"math/big"
	"testing"
)

func TestNumberKey(t *testing.T) {
	numbers := []string{
		"0", "-0", "0.00", "0e5", "1", "1.0", "10e-1", "0.1e1", "-1", "1000", "1e3", "1E+3", "1.5", "15e-1", "9007199254740992", "9007199254740993",
		"123456789012345678", "1234567890123456789", "1e300", "10e299", "-0.00125", "125e-5", "1e17", "1e18", "1e19",
	}
	for _, a := range numbers {
		for _, b := range numbers {
			x, _ := new(big.Rat).SetString(a)
			y, _ := new(big.Rat).SetString(b)
			if got, want := NumberKey([]byte(a)) == NumberKey([]byte(b)), x.Cmp(y) == 0; got != want {
				t.Errorf("%s and %s: got %s and %s, want them equal: %v", a, b, NumberKey([]byte(a)), NumberKey([]byte(b)), want)
			}
		}
	}
	for number, want := range map[string]string{"1e3": "1000", "-1.0": "-1", "1e999999999999": "1e999999999999", "0e-99999999999999": "0e-99999999999999", "1e18": "1e18"} {
		if got := NumberKey([]byte(number)); got != want {
			t.Errorf("%s: got %s, want %s", number, got, want)
		}
	}
}
