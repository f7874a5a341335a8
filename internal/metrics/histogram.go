package metrics

import (
	"math"
	"slices"
	"time"
)

// bounds are the upper bounds of a histogram's buckets, in seconds: ten in each
// power of ten, from 10 µs to 2 h. They contain those that are published.
var bounds = func() (out []float64) {
	for power := -5; power <= 3; power++ {
		for _, digits := range []float64{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
			// Division by a power of ten is exact where multiplication is not.
			out = append(out, digits*math.Pow10(power+5)/1e6)
		}
	}
	return out[:slices.Index(out, 8000)+1]
}()

// published are the bounds that Prometheus gets: those of the MCP conventions, with
// smaller ones, because a warm call takes about a millisecond.
var published = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// A Histogram counts durations. The zero value is empty.
type Histogram struct {
	Count uint64  `json:"count"`
	Sum   float64 `json:"sum"` // in seconds
	// Buckets has how many were in each bucket. Empty ones at the end are not there.
	Buckets []uint64 `json:"buckets"`
}

func (h *Histogram) observe(d time.Duration) {
	seconds := max(0, d.Seconds())
	h.Count++
	h.Sum += seconds
	i, _ := slices.BinarySearch(bounds, seconds) // len(bounds): longer than all
	h.grow(i + 1)
	h.Buckets[i]++
}

func (h *Histogram) grow(n int) {
	if len(h.Buckets) < n {
		h.Buckets = append(h.Buckets, make([]uint64, n-len(h.Buckets))...)
	}
}

// add adds what another histogram has counted. It may come from another process.
func (h *Histogram) add(other *Histogram) {
	h.Count += other.Count
	h.Sum += other.Sum
	buckets := other.Buckets[:min(len(other.Buckets), len(bounds)+1)]
	h.grow(len(buckets))
	for i, n := range buckets {
		h.Buckets[i] += n
	}
}

// upTo returns how many took no longer than one of the bounds.
func (h *Histogram) upTo(bound float64) (n uint64) {
	for i, count := range h.Buckets {
		if i == len(bounds) || bounds[i] > bound {
			break
		}
		n += count
	}
	return n
}

// Quantile returns the duration in seconds that a share of all did not exceed, by
// interpolation between the bounds of its bucket; 0 of an empty histogram.
func (h *Histogram) Quantile(share float64) float64 {
	rank := share * float64(h.Count)
	var before float64
	for i, count := range h.Buckets {
		n := float64(count)
		if n == 0 || before+n < rank {
			before += n
			continue
		}
		if i == len(bounds) {
			break
		}
		lower := 0.0
		if i > 0 {
			lower = bounds[i-1]
		}
		return lower + (bounds[i]-lower)*(rank-before)/n
	}
	if h.Count == 0 {
		return 0
	}
	return bounds[len(bounds)-1]
}
