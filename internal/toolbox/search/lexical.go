package search

// whole is the weight 1 of the words of a query.
const whole = 256

// A substitute for a word of a query counts less than the word itself.
const (
	requestWeight = whole * 3 / 10
	oneTypo       = whole * 7 / 10
	twoTypos      = whole * 5 / 10
)

// maxAsked bounds how many words of a query are used, and maxTypos how many of
// them are compared with the whole vocabulary.
const (
	maxAsked = 256
	maxTypos = 4
)

// alternative is a term that stands for a word of a query.
type alternative struct {
	term   int32
	weight int32
}

// asked is a word of a query: the terms that stand for it. For a document the
// best of them counts.
type asked struct {
	weight       int32
	alternatives []alternative
}

// lexical scores every document, in units.
func (x *Index) lexical(query string) []int32 {
	scores := make([]int32, len(x.docs))
	best := make([]int32, len(x.docs))
	var touched []int32
	for _, a := range x.asked(query) {
		touched = touched[:0]
		for _, alt := range a.alternatives {
			for _, p := range x.posts(alt.term) {
				if best[p.doc] == 0 {
					touched = append(touched, p.doc)
				}
				best[p.doc] = max(best[p.doc], p.score*alt.weight/whole)
			}
		}
		for _, doc := range touched {
			scores[doc] += best[doc] * a.weight / whole
			best[doc] = 0
		}
	}
	return scores
}

// asked splits a query into words.
func (x *Index) asked(query string) []asked {
	var out []asked
	seen := map[string]bool{}
	last, typos := "", 0
	words(query, func(word string) {
		if stopWords[word] || len(out) >= maxAsked {
			last = ""
			return
		}
		// "web scraper" may be called webscraper.
		if last != "" {
			if t, ok := x.terms[stem(last+word)]; ok && !seen[last+word] {
				seen[last+word] = true
				out = append(out, asked{whole, []alternative{{t, whole}}})
			}
		}
		last = word
		s := stem(word)
		if seen[s] {
			return
		}
		seen[s] = true
		a := asked{weight: whole}
		if requestWords[word] {
			a.weight = requestWeight
		}
		exact, known := x.terms[s]
		if known {
			a.alternatives = append(a.alternatives, alternative{exact, whole})
		}
		near := neighboursOf(s)
		if !known && near.row < 0 && typos < maxTypos && !wellKnown(word) {
			typos++
			a.alternatives = x.misspelt(word)
		}
		near.each(func(stem string, likeness int) {
			if t, ok := x.terms[stem]; ok {
				a.alternatives = append(a.alternatives, alternative{t, neighbourWeight(likeness)})
			}
		})
		if len(a.alternatives) > 0 {
			out = append(out, a)
		}
	})
	return out
}
