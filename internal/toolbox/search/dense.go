package search

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/sallyport/sallyport/internal/toolbox/search/vectors"
)

// described bounds in bytes how much of a description states what a tool is
// about; the rest is detail.
const described = 400

// about returns the string whose vector represents a document. If there is only
// one server, its name is left out.
func about(d *Doc, oneServer bool) string {
	var b strings.Builder
	spell := func(word string) {
		b.WriteString(word)
		b.WriteByte(' ')
	}
	if !oneServer {
		words(d.Server, spell)
	}
	words(d.Name, spell)
	b.WriteString(": ")
	text := d.Description
	if len(text) > described {
		cut := described
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	b.WriteString(text)
	return b.String()
}

// fine represents the similarity 1 as an integer.
const fine = 1 << 14

// likenesses returns the similarity of every document to the query.
func (x *Index) likenesses(query string) []int32 {
	out := make([]int32, len(x.docs))
	q := vectors.Of(query)
	for i := range x.vectors {
		out[i] = int32(math.Round(fine * vectors.Likeness(&q, &x.vectors[i])))
	}
	return out
}

// standard expresses scores in deviations from their mean. Scores of two
// methods can then be added.
// can be added.
func standard(scores []int32) []float64 {
	n := int64(len(scores))
	var sum, squares int64
	for _, s := range scores {
		sum += int64(s)
		squares += int64(s) * int64(s)
	}
	out := make([]float64, n)
	// This is n times the square root of the variance: whole numbers as long as
	// possible.
	spread := math.Sqrt(float64(n*squares - sum*sum))
	if spread == 0 {
		return out
	}
	for i, s := range scores {
		out[i] = float64(n*int64(s)-sum) / spread
	}
	return out
}
