package settings

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration reads a number of seconds ("30", "0.5") or a duration in Go's
// format ("30s", "1h30m"). A negative one is an error.
func ParseDuration(text string) (time.Duration, error) {
	wrong := errors.New("not a duration such as 30, 30s or 2m")
	if isPlainNumber(text) {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, wrong
		}
		if seconds > math.MaxInt64/float64(2*time.Second) {
			return math.MaxInt64, nil // greater than any limit
		}
		return time.Duration(math.Round(seconds * float64(time.Second))), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, wrong
	}
	return d, nil
}

// FormatDuration formats d as Go does, without parts that are zero: "2m",
// "1h30m".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func duration(field *time.Duration, low, high time.Duration) *scalar[time.Duration] {
	return &scalar[time.Duration]{
		field: field,
		read: func(text string, _ place) (time.Duration, error) {
			d, err := ParseDuration(text)
			if err != nil {
				return 0, err
			}
			if d < low || d > high {
				return 0, fmt.Errorf("out of range: %s to %s", FormatDuration(low), FormatDuration(high))
			}
			return d, nil
		},
		print: FormatDuration,
		forms: asText | asNumber, name: "duration",
		span: FormatDuration(low) + " to " + FormatDuration(high),
	}
}
