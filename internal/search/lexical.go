package search

// whole is the weight 1 in what a query's words weigh.
const whole = 256

// requestWeight is what a word of requestWords weighs in a query.
const requestWeight = whole * 3 / 10

// asked is a word of a query.
type asked struct {
	term   int32
	weight int32
}

// lexical scores every document, in units.
func (x *Index) lexical(query string) []int32 {
	scores := make([]int32, len(x.docs))
	for _, a := range x.asked(query) {
		for _, p := range x.posts(a.term) {
			scores[p.doc] += p.score * a.weight / whole
		}
	}
	return scores
}

func (x *Index) asked(query string) []asked {
	var out []asked
	seen := map[int32]bool{}
	words(query, func(word string) {
		if stopWords[word] {
			return
		}
		t, known := x.terms[stem(word)]
		if !known || seen[t] {
			return
		}
		seen[t] = true
		w := int32(whole)
		if requestWords[word] {
			w = requestWeight
		}
		out = append(out, asked{t, w})
	})
	return out
}
