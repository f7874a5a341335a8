// Package search ranks tools by how well they answer a request in plain words.
//
// An Index is a pure value made of documents, one per tool. Nothing here reads
// files, the clock or the network, and the same documents and query give the
// same hits in the same order on every machine: scores are sums of integers,
// and equal scores are ordered by server and name.
//
// The scores of two methods are added. The lexical method compares words: where
// they occur, their stems, their neighbours in meaning and their misspellings.
// The vectors compare what a query and a tool are about. docs/RATIONALE.md has
// measurements of both, and of what was tried and rejected.
package search

import (
	"cmp"
	"math"
	"slices"
)

// Argument is one argument of a tool.
type Argument struct {
	Name, Description string
}

// Doc is what is known about one tool. Every field may be empty.
type Doc struct {
	Server            string
	ServerDescription string
	Name              string
	Description       string
	Arguments         []Argument
	// ReadOnly is set if the tool changes nothing. A search may ask for such
	// tools only.
	ReadOnly bool
}

// Method is a way of ranking. The zero value is the best one.
type Method int

// The methods.
const (
	Both Method = iota
	Lexical
	Vectors
)

var methodNames = [...]string{"both", "lexical", "vectors"}

// String returns the method's name.
func (m Method) String() string {
	if m < 0 || int(m) >= len(methodNames) {
		return "unknown"
	}
	return methodNames[m]
}

// MethodNamed returns the method of that name.
func MethodNamed(name string) (Method, bool) {
	for i, n := range methodNames {
		if n == name {
			return Method(i), true
		}
	}
	return 0, false
}

// Options narrow a search. The zero value ranks all documents by Both.
type Options struct {
	// Limit is the maximum number of hits; 0 or less means all.
	Limit int
	// Servers, if not empty, restricts the search to these servers.
	Servers []string
	// ReadOnly leaves out tools that may change something.
	ReadOnly bool
	Method   Method
}

// Hit is a document that was found.
type Hit struct {
	// Doc is the document's index in the argument of New.
	Doc int
	// Score falls from hit to hit. Scores are comparable within one search
	// only.
	Score float64
	// Weak: neither its words nor its meaning are near those of the query, which
	// does not name it either. It is the best of many, and likely of no use.
	Weak bool
}

// The weights of the two methods.
const (
	lexicalShare = 0.4
	vectorShare  = 0.6
)

// alike is the similarity from which a document is a hit even if it has no word
// of the query.
const alike = fine * 20 / 100

// A hit that is less like the query, and has fewer of its words, is weak. Of the 2,047
// queries of bench/search, which all have an answer, none or one gets only weak ones.
const (
	likeEnough  = fine * 27 / 100
	wordsEnough = 2 * unit
)

// Search returns the documents that answer query, best first. Tools that the
// query names, however the name is written, come before the others.
func (x *Index) Search(query string, o Options) []Hit {
	var lexical, likeness []int32
	if o.Method != Vectors {
		lexical = x.lexical(query)
	}
	if o.Method != Lexical {
		likeness = x.likenesses(query)
	}
	var hits []Hit
	for i := range x.docs {
		if !x.wanted(i, &o) {
			continue
		}
		if lexical != nil && lexical[i] > 0 || likeness != nil && likeness[i] >= alike {
			weak := (lexical == nil || lexical[i] < wordsEnough) && (likeness == nil || likeness[i] < likeEnough)
			hits = append(hits, Hit{Doc: i, Weak: weak})
		}
	}
	switch o.Method {
	case Lexical:
		for i := range hits {
			hits[i].Score = float64(lexical[hits[i].Doc]) / unit
		}
	case Vectors:
		for i := range hits {
			hits[i].Score = float64(likeness[hits[i].Doc]) / fine
		}
	default:
		words, sense := standard(lexical), standard(likeness)
		for i := range hits {
			doc := hits[i].Doc
			hits[i].Score = float64(lexicalShare*words[doc]) + float64(vectorShare*sense[doc])
		}
	}
	if o.Method != Vectors {
		x.first(hits, query)
	}
	return x.best(hits, o.Limit)
}

// first moves the tools that a query names to the front.
func (x *Index) first(hits []Hit, query string) {
	names := names(query)
	if len(names) == 0 {
		return
	}
	most, least := math.Inf(-1), math.Inf(1)
	for _, h := range hits {
		most, least = max(most, h.Score), min(least, h.Score)
	}
	for i := range hits {
		if x.docs[hits[i].Doc].named(names) {
			hits[i].Score += most - least + 1
			hits[i].Weak = false
		}
	}
}

// best returns the first hits in order, limit of them, or all if limit is not
// positive.
func (x *Index) best(hits []Hit, limit int) []Hit {
	order := func(a, b Hit) int {
		if c := cmp.Compare(b.Score, a.Score); c != 0 {
			return c
		}
		return cmp.Compare(x.rank[a.Doc], x.rank[b.Doc])
	}
	if limit <= 0 || limit >= len(hits) {
		slices.SortFunc(hits, order)
		return hits
	}
	// For few out of many, each hit is inserted among the best so far, at the
	// front of the same slice.
	top := hits[:0]
	for _, h := range hits {
		if len(top) == limit && order(h, top[limit-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, h, order)
		top = slices.Insert(top[:min(len(top), limit-1)], at, h)
	}
	return slices.Clip(top)
}

// wanted reports whether the options admit a document.
func (x *Index) wanted(doc int, o *Options) bool {
	d := &x.docs[doc]
	return (d.readOnly || !o.ReadOnly) && (len(o.Servers) == 0 || slices.Contains(o.Servers, d.server))
}
