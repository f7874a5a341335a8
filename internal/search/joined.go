package search

import "sallyport/internal/search/vectors"

// Names are often written together: webscraper, airqualityforecast.
const (
	shortestJoined = 7 // letters of a word that may be several
	shortestPart   = 3
	longestJoined  = 40
)

// parts splits a word into as few words as it can be made of, nil where it is
// no more than one or cannot be split. Each part is one that spoken knows.
func parts(word string, spoken func(part string) bool) []string {
	n := len(word)
	if n < shortestJoined || n > longestJoined {
		return nil
	}
	// fewest[i] is how many parts the first i letters are made of, 0 if none,
	// and from[i] where the last of them begins.
	var fewest, from [longestJoined + 1]int
	for end := shortestPart; end <= n; end++ {
		for start := 0; start <= end-shortestPart; start++ {
			if start > 0 && fewest[start] == 0 || end-start == n {
				continue
			}
			if k := fewest[start] + 1; (fewest[end] == 0 || k < fewest[end]) && spoken(word[start:end]) {
				fewest[end], from[end] = k, start
			}
		}
	}
	if fewest[n] == 0 {
		return nil
	}
	out := make([]string, fewest[n])
	for end, i := n, fewest[n]-1; i >= 0; i-- {
		out[i] = word[from[end]:end]
		end = from[end]
	}
	return out
}

// joined is a word of a name that may be several written together.
type joined struct {
	doc   int
	field field
	word  string
}

// apart adds the parts of joined words to the fields that they stand in. It
// comes after all documents: a word that stands in a description is no joined
// one, and is a part that another may have.
func (b *builder) apart() {
	spoken := func(part string) bool {
		k := b.known[part]
		return k != nil && k.said || len(part) > shortestPart && vectors.Known(part)
	}
	for _, j := range b.joined {
		if b.known[j.word].said || vectors.Known(j.word) {
			continue
		}
		b.enter(j.doc)
		for _, part := range parts(j.word, spoken) {
			if k := b.word(part); k.term >= 0 {
				b.count(j.doc, k.term, j.field)
			}
		}
		b.leave(j.doc)
	}
}
