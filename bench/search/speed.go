package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/toolbox/search"
)

// speed says what searching n tools costs: copies of docs under other servers'
// names, or the first n of them.
func speed(docs []search.Doc, queries []query, method string, n int) string {
	many := make([]search.Doc, n)
	for i := range many {
		many[i] = docs[i%len(docs)]
		if copied := i / len(docs); copied > 0 {
			many[i].Server = fmt.Sprintf("%s%d", many[i].Server, copied)
		}
	}
	before := heap()
	start := time.Now()
	find := finder(method, many)
	made := time.Since(start)
	held := heap() - before
	runtime.KeepAlive(many)
	var times []time.Duration
	for _, q := range queries {
		// The quickest of a few: what else the machine does is left out.
		quickest := time.Duration(math.MaxInt64)
		for range 5 {
			start := time.Now()
			find(q.text, 5)
			quickest = min(quickest, time.Since(start))
		}
		times = append(times, quickest)
	}
	slices.Sort(times)
	milliseconds := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%s over %d tools: p50 %.2f ms p95 %.2f ms, index made in %.0f ms, holds %.1f MB",
		method, n, milliseconds(times[len(times)/2]), milliseconds(times[len(times)*95/100]), milliseconds(made), float64(held)/1e6)
}

func heap() int64 {
	// What a pool lets go of takes two.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
