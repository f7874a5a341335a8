package search

import (
	"math/bits"

	"github.com/sallyport/sallyport/internal/toolbox/search/vectors"
)

// wellKnown reports whether a word is spelled correctly, whether or not a tool
// has it.
func wellKnown(word string) bool { return vectors.Known(word) }

// spelling is a word of the documents.
type spelling struct {
	word    string
	letters uint32
	term    int32
}

// misspelt returns the terms that an unknown word may have been meant to be:
// the nearest ones with at most one mistake, or two in a long word.
func (x *Index) misspelt(word string) []alternative {
	allowed := 0
	switch n := len(word); {
	case n >= 8:
		allowed = 2
	case n >= 4:
		allowed = 1
	}
	var out []alternative
	if allowed == 0 {
		return nil
	}
	letters := letterSet(word)
	for i := range x.spellings {
		known := &x.spellings[i]
		if d := len(known.word) - len(word); d > allowed || -d > allowed || bits.OnesCount32(known.letters^letters) > 2*allowed {
			continue
		}
		d := distance(word, known.word, allowed)
		if d > allowed {
			continue
		}
		if d < allowed {
			// This one is nearer than all before.
			allowed, out = d, out[:0]
		}
		weight := int32(oneTypo)
		if d == 2 {
			weight = twoTypos
		}
		out = append(out, alternative{known.term, weight})
	}
	return out
}

// letterSet has a bit for every letter of a word, as far as there are bits.
func letterSet(word string) uint32 {
	var set uint32
	for i := 0; i < len(word); i++ {
		set |= 1 << (word[i] & 31)
	}
	return set
}

// maxCompared is the longest stem that is compared.
const maxCompared = 32

// distance returns the smallest number of letters to insert, remove, replace or
// swap with their neighbour. For anything above limit it may return limit+1.
func distance(a, b string, limit int) int {
	if len(a) > maxCompared || len(b) > maxCompared {
		return limit + 1
	}
	var rows [3][maxCompared + 1]int
	before, last, now := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		now[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			now[j] = d
			least = min(least, d)
		}
		if least > limit {
			return limit + 1
		}
		before, last, now = last, now, before
	}
	return last[len(b)]
}
