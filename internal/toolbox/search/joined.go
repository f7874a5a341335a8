package search

import "github.com/sallyport/sallyport/internal/toolbox/search/vectors"

// Names are often written together: webscraper, airqualityforecast.
const (
	shortestJoined = 7 // letters of a word that may be several
	shortestPart   = 3
	longestJoined  = 40
)

// parts splits a word into as few known words as possible. It returns nil if
// the word cannot be split. spoken reports whether a part is known.
func parts(word string, spoken func(part string) bool) []string {
	n := len(word)
	if n < shortestJoined || n > longestJoined {
		return nil
	}
	// fewest[i] is the smallest number of parts that form the first i letters,
	// 0 if none do, and from[i] is where the last part begins.
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

// joined is a word in a name that may be several words written together.
type joined struct {
	doc   int
	field field
	word  string
}

// apart adds the parts of joined words to the fields in which they occur. It
// runs after all documents: a word that occurs in a description is not a joined
// one, and may be a part of another.
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
