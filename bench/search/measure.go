package main

import (
	"fmt"
	"io"
	"math"
	"sort"
	"time"

	"github.com/sallyport/sallyport/internal/toolbox/search"
)

// depth is how far down a relevant tool is looked for.
const depth = 100

// figures are the means over all queries.
type figures struct {
	hit1, r1, r5, r10, mrr float64
	se5                    float64 // standard error of r5
	rate                   float64 // queries per second
}

func (f figures) String() string {
	return fmt.Sprintf("hit@1 %.3f R@1 %.3f R@5 %.3f R@10 %.3f MRR %.3f se(R@5) %.3f q/s %.0f",
		f.hit1, f.r1, f.r5, f.r10, f.mrr, f.se5, f.rate)
}

// measure asks every query. What of a query is not among the first five is
// named on misses, if that is not nil.
func measure(docs []search.Doc, queries []query, find find, misses io.Writer) figures {
	var f figures
	var fives []float64
	var took time.Duration
	for _, q := range queries {
		start := time.Now()
		hits := find(q.text, depth)
		took += time.Since(start)

		first, five := 0, share(hits, q.relevant, 5)
		for at, doc := range hits {
			if q.relevant[doc] {
				first = at + 1
				break
			}
		}
		if first == 1 {
			f.hit1++
		}
		if first > 0 {
			f.mrr += 1 / float64(first)
		}
		f.r1 += share(hits, q.relevant, 1)
		f.r5 += five
		f.r10 += share(hits, q.relevant, 10)
		fives = append(fives, five)
		if misses != nil && five < 1 {
			name(misses, docs, q, hits)
		}
	}
	n := float64(len(queries))
	f.hit1, f.r1, f.r5, f.r10, f.mrr = f.hit1/n, f.r1/n, f.r5/n, f.r10/n, f.mrr/n
	f.se5 = standardError(fives, f.r5)
	f.rate = n / took.Seconds()
	return f
}

// share is how much of what is relevant stands among the first k hits.
func share(hits []int, relevant map[int]bool, k int) float64 {
	found := 0
	for _, doc := range hits[:min(k, len(hits))] {
		if relevant[doc] {
			found++
		}
	}
	return float64(found) / float64(len(relevant))
}

func standardError(values []float64, mean float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	sum := 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(values)-1) / float64(len(values)))
}

func name(w io.Writer, docs []search.Doc, q query, hits []int) {
	fmt.Fprintf(w, "%s\n", q.text)
	var missed []string
	for doc := range q.relevant {
		if doc >= 0 && share(hits, map[int]bool{doc: true}, 5) == 0 {
			missed = append(missed, id(&docs[doc]))
		}
	}
	sort.Strings(missed)
	fmt.Fprintf(w, "  missed %v, found", missed)
	for _, doc := range hits[:min(5, len(hits))] {
		fmt.Fprintf(w, " %s", id(&docs[doc]))
	}
	fmt.Fprintln(w)
}
