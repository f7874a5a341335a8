package main

import (
	"fmt"
	"slices"
	"time"
)

// A sample is a set of measured durations.
type sample []time.Duration

// quantile returns the value below which the fraction q of the sample lies
// (nearest rank).
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Clone(s)
	slices.Sort(sorted)
	i := int(q*float64(len(sorted)) + 0.5)
	return sorted[min(max(i-1, 0), len(sorted)-1)]
}

func (s sample) p50() time.Duration { return s.quantile(0.50) }
func (s sample) p95() time.Duration { return s.quantile(0.95) }

// repeat times n calls of f after warm untimed ones.
func repeat(warm, n int, f func() error) (sample, error) {
	s := make(sample, 0, n)
	for i := range warm + n {
		begin := time.Now()
		if err := f(); err != nil {
			return nil, fmt.Errorf("repetition %d: %w", i+1, err)
		}
		if i >= warm {
			s = append(s, time.Since(begin))
		}
	}
	return s, nil
}

// show writes a duration in milliseconds, with the digits that mean something.
func show(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}
