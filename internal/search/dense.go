package search

import (
	"math"
	"strings"
	"unicode/utf8"

	"sallyport/internal/search/vectors"
)

// described bounds how much of a description is what a tool is about, in
// bytes; what follows is detail.
const described = 400

// about is the text whose vector a document has. A server that is the only
// one tells nothing apart.
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

// fine is the likeness 1 in integers.
const fine = 1 << 14

// likenesses are those of every document with query.
func (x *Index) likenesses(query string) []int32 {
	out := make([]int32, len(x.docs))
	q := vectors.Of(query)
	for i := range x.vectors {
		out[i] = int32(math.Round(fine * vectors.Likeness(&q, &x.vectors[i])))
	}
	return out
}

// standard tells scores in deviations from their mean: of two methods, those
// can be added.
func standard(scores []int32) []float64 {
	n := int64(len(scores))
	var sum, squares int64
	for _, s := range scores {
		sum += int64(s)
		squares += int64(s) * int64(s)
	}
	out := make([]float64, n)
	// n times the variance, times n: whole numbers as long as possible.
	spread := math.Sqrt(float64(n*squares - sum*sum))
	if spread == 0 {
		return out
	}
	for i, s := range scores {
		out[i] = float64(n*int64(s)-sum) / spread
	}
	return out
}
