package toon

import (
	"errors"
	"strconv"
	"strings"
)

// The range in which §2 prescribes plain digits, by the exponent of the first
// significant one: 1e-6 <= |n| < 1e21.
const (
	minPlainExponent = -6
	maxPlainExponent = 20
)

// maxExponent bounds the numbers that we handle, by the exponent of the first
// significant digit. Any reader's arithmetic ends far below it.
const maxExponent = 1_000_000

var errExponent = errors.New("a number's exponent is out of range")

// isNumber reports whether s is a number as §4 and JSON both have it.
func isNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return unsignedNumber(s) && (s[0] != '0' || len(s) == 1 || !isDigit(s[1]))
}

// looksNumeric reports whether s, as a string value, must be quoted lest some
// decoder take it for a number (§7.2).
func looksNumeric(s string) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	return unsignedNumber(s)
}

// unsignedNumber matches digits, then maybe a fraction, then maybe an exponent.
func unsignedNumber(s string) bool {
	i := digits(s, 0)
	if i == 0 {
		return false
	}
	if i < len(s) && s[i] == '.' {
		j := digits(s, i+1)
		if j == i+1 {
			return false
		}
		i = j
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		j := digits(s, i)
		if j == i {
			return false
		}
		i = j
	}
	return i == len(s)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns where the run of digits that starts at i ends.
func digits(s string, i int) int {
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	return i
}

// canonicalNumber writes a number in the one form that we use for its value. s
// must satisfy isNumber.
func canonicalNumber(s string) (string, error) {
	unsigned, negative := strings.CutPrefix(s, "-")
	if len(unsigned) <= maxPlainExponent && digits(unsigned, 0) == len(unsigned) {
		if unsigned == "0" {
			return "0", nil
		}
		return s, nil
	}

	mantissa, exponent := unsigned, ""
	if i := strings.IndexAny(unsigned, "eE"); i >= 0 {
		mantissa, exponent = unsigned[:i], unsigned[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	point := len(whole) // the value is 0.DIGITS times ten to the power of point
	significant := strings.TrimLeft(whole+fraction, "0")
	point -= len(whole) + len(fraction) - len(significant)
	significant = strings.TrimRight(significant, "0")
	if significant == "" {
		return "0", nil
	}
	if exponent != "" {
		e, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil {
			return "", errExponent
		}
		point += int(e)
	}
	if point-1 < -maxExponent || point-1 > maxExponent {
		return "", errExponent
	}
	return formatNumber(negative, significant, point), nil
}

// formatNumber writes 0.SIGNIFICANT times ten to the power of point, where
// significant neither starts nor ends with a zero.
func formatNumber(negative bool, significant string, point int) string {
	n, exponent := len(significant), point-1
	plain := minPlainExponent <= exponent && exponent <= maxPlainExponent

	scientific := significant[:1]
	if n > 1 {
		scientific += "." + significant[1:]
	}
	if exponent >= 0 {
		scientific += "e+" + strconv.Itoa(exponent)
	} else {
		scientific += "e" + strconv.Itoa(exponent)
	}

	var out string
	switch {
	case !plain && (point < n || point > len(scientific)):
		out = scientific
	case point <= 0:
		out = "0." + strings.Repeat("0", -point) + significant
	case point < n:
		out = significant[:point] + "." + significant[point:]
	default:
		out = significant + strings.Repeat("0", point-n)
	}
	if negative {
		return "-" + out
	}
	return out
}
