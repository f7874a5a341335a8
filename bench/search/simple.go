package main

import (
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/toolbox/search"
)

// Two ways to search that others use, as something to compare with.

var wordRuns = regexp.MustCompile(`[\pL\pN]+`)

func plainWords(s string) []string {
	return wordRuns.FindAllString(strings.ToLower(s), -1)
}

func plainText(d *search.Doc) string {
	return strings.ToLower(d.Server + " " + d.Name + " " + d.Description)
}

// bm25 is BM25 with its usual constants over server, name and description, in
// lower case and nothing else.
func bm25(docs []search.Doc) find {
	const k1, b = 1.2, .75
	having := map[string]int{}
	counts := make([]map[string]int, len(docs))
	lengths, total := make([]int, len(docs)), 0
	for i := range docs {
		counts[i] = map[string]int{}
		for _, w := range plainWords(plainText(&docs[i])) {
			counts[i][w]++
			lengths[i]++
		}
		total += lengths[i]
		for w := range counts[i] {
			having[w]++
		}
	}
	mean := max(float64(total)/float64(len(docs)), 1)
	return func(query string, limit int) []int {
		scores := make([]float64, len(docs))
		for _, w := range plainWords(query) {
			n := float64(having[w])
			if n == 0 {
				continue
			}
			rare := math.Log(1 + (float64(len(docs))-n+.5)/(n+.5))
			for i := range docs {
				if c := float64(counts[i][w]); c > 0 {
					scores[i] += rare * c * (k1 + 1) / (c + k1*(1-b+b*float64(lengths[i])/mean))
				}
			}
		}
		return best(scores, limit)
	}
}

// substring counts which words of the query are contained anywhere.
func substring(docs []search.Doc) find {
	texts := make([]string, len(docs))
	for i := range docs {
		texts[i] = plainText(&docs[i])
	}
	return func(query string, limit int) []int {
		scores := make([]float64, len(docs))
		asked := strings.Fields(strings.ToLower(query))
		slices.Sort(asked)
		for _, w := range slices.Compact(asked) {
			for i, t := range texts {
				if strings.Contains(t, w) {
					scores[i]++
				}
			}
		}
		return best(scores, limit)
	}
}

// best are the places of the highest scores above 0, earlier ones first where
// scores are equal.
func best(scores []float64, limit int) []int {
	var out []int
	for i, s := range scores {
		if s > 0 {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return out[:min(limit, len(out))]
}
