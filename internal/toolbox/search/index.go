package search

import (
	"math"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/toolbox/search/vectors"
)

// A field is a part of a document whose words have the same weight.
type field int

const (
	nameField field = iota
	serverField
	descriptionField
	argumentField
	argumentTextField
	serverTextField
	fields
)

// fieldWeight is the weight of a word in a field. fieldLength is how strongly
// above-average length of the field is penalized (BM25's b).
var (
	fieldWeight = [fields]float64{nameField: 3, serverField: 1.5, descriptionField: 1, argumentField: .6, argumentTextField: .3, serverTextField: .3}
	fieldLength = [fields]float64{nameField: .3, serverField: .3, descriptionField: .55, argumentField: .55, argumentTextField: .55, serverTextField: .55}
)

// saturation is BM25's k1: how soon more occurrences of a word stop counting.
const saturation = 1.3

// unit represents 1 in the integer scores. Sums of integers do not depend on
// their order, nor on whether a machine fuses multiply and add.
const unit = 1 << 12

// posting is the score of a term in a document, in units.
type posting struct {
	doc   int32
	score int32
}

// Index finds documents. It is immutable after New, and safe for concurrent
// use.
type Index struct {
	docs []entry
	// rank orders documents of equal score: by server, name and position.
	rank []int32

	terms map[string]int32
	// spellings are the words behind the terms, which are stems, in the same
	// order.
	spellings []spelling
	// postings of term t are lists[starts[t]:starts[t+1]], by document.
	starts []int32
	lists  []posting

	vectors []vectors.Vector
}

// entry is what is kept of a document.
type entry struct {
	server, name string
	readOnly     bool
	// spelled is the name as separate words; full has the server's name in
	// front.
	spelled, full string
}

// New indexes docs. It copies the strings that it keeps, so the caller may
// release the rest.
func New(docs []Doc) *Index {
	x := &Index{terms: map[string]int32{}}
	b := builder{x: x, known: map[string]*known{}, oneServer: oneServer(docs)}
	for i := range docs {
		d := &docs[i]
		x.docs = append(x.docs, entry{
			server: strings.Clone(d.Server), name: strings.Clone(d.Name), readOnly: d.ReadOnly,
			spelled: spelled(d.Name), full: spelled(d.Server + " " + d.Name),
		})
		b.add(&docs[i])
	}
	b.apart()
	b.finish()
	x.vectors = make([]vectors.Vector, len(docs))
	for i := range docs {
		x.vectors[i] = vectors.Of(about(&docs[i], b.oneServer))
	}
	slices.SortFunc(x.spellings, func(a, b spelling) int { return strings.Compare(a.word, b.word) })
	x.order()
	return x
}

func oneServer(docs []Doc) bool {
	for i := range docs {
		if docs[i].Server != docs[0].Server {
			return false
		}
	}
	return true
}

// Len returns the number of documents.
func (x *Index) Len() int { return len(x.docs) }

func (x *Index) order() {
	places := make([]int32, len(x.docs))
	for i := range places {
		places[i] = int32(i)
	}
	slices.SortStableFunc(places, func(a, b int32) int {
		p, q := &x.docs[a], &x.docs[b]
		if c := strings.Compare(p.server, q.server); c != 0 {
			return c
		}
		return strings.Compare(p.name, q.name)
	})
	x.rank = make([]int32, len(places))
	for r, i := range places {
		x.rank[i] = int32(r)
	}
}

// posts returns the documents that contain a term.
func (x *Index) posts(term int32) []posting {
	return x.lists[x.starts[term]:x.starts[term+1]]
}

// count is how often a term occurs in each field of a document.
type count struct {
	term   int32
	counts [fields]uint16
}

// builder holds what only New needs.
type builder struct {
	x *Index
	// oneServer is set if all documents have the same server, whose name then
	// distinguishes none.
	oneServer bool

	known  map[string]*known
	joined []joined
	counts [][]count
	length [][fields]int32
	// seen maps a term to its position in the counts of the current document,
	// plus one.
	seen []int32
}

// known is what was seen of a word.
type known struct {
	term int32 // -1 for a stop word
	said bool  // occurs in running text, not only in names
}

func (b *builder) word(word string) *known {
	k := b.known[word]
	if k != nil {
		return k
	}
	k = &known{term: -1}
	if !stopWords[word] {
		s := stem(word)
		var old bool
		if k.term, old = b.x.terms[s]; !old {
			k.term = int32(len(b.x.terms))
			b.x.terms[strings.Clone(s)] = k.term
			b.seen = append(b.seen, 0)
		}
	}
	word = strings.Clone(word)
	if k.term >= 0 {
		b.x.spellings = append(b.x.spellings, spelling{word, letterSet(word), k.term})
	}
	b.known[word] = k
	return k
}

func (b *builder) add(d *Doc) {
	b.counts = append(b.counts, nil)
	b.length = append(b.length, [fields]int32{})
	b.field(d.Name, nameField)
	b.field(d.Description, descriptionField)
	if !b.oneServer {
		b.field(d.Server, serverField)
		b.field(d.ServerDescription, serverTextField)
	}
	for _, a := range d.Arguments {
		b.field(a.Name, argumentField)
		b.field(a.Description, argumentTextField)
	}
	b.leave(len(b.counts) - 1)
}

func (b *builder) field(text string, f field) {
	doc := len(b.counts) - 1
	words(text, func(word string) {
		k := b.word(word)
		switch f {
		case descriptionField, argumentTextField, serverTextField:
			k.said = true
		case nameField, serverField:
			if len(word) >= shortestJoined {
				b.joined = append(b.joined, joined{doc, f, word})
			}
		}
		if k.term >= 0 {
			b.count(doc, k.term, f)
		}
	})
}

// count adds a term to a field of a document, which stays the current one until
// leave is called.
func (b *builder) count(doc int, term int32, f field) {
	if b.seen[term] == 0 {
		b.counts[doc] = append(b.counts[doc], count{term: term})
		b.seen[term] = int32(len(b.counts[doc]))
	}
	if n := &b.counts[doc][b.seen[term]-1].counts[f]; *n < math.MaxUint16 {
		*n++
	}
	b.length[doc][f]++
}

func (b *builder) enter(doc int) {
	for i, c := range b.counts[doc] {
		b.seen[c.term] = int32(i) + 1
	}
}

func (b *builder) leave(doc int) {
	for _, c := range b.counts[doc] {
		b.seen[c.term] = 0
	}
}

// finish turns the counts into scores.
func (b *builder) finish() {
	x, n := b.x, len(b.counts)
	var mean [fields]float64
	for f := range fields {
		sum, having := 0, 0
		for i := range b.length {
			if l := b.length[i][f]; l > 0 {
				sum, having = sum+int(l), having+1
			}
		}
		mean[f] = float64(sum) / float64(max(having, 1))
	}
	x.starts = make([]int32, len(x.terms)+1)
	for _, counts := range b.counts {
		for _, c := range counts {
			x.starts[c.term+1]++
		}
	}
	rare := make([]float64, len(x.terms))
	for t := range rare {
		rare[t] = rarity(int(x.starts[t+1]), n)
		x.starts[t+1] += x.starts[t]
	}
	x.lists = make([]posting, x.starts[len(x.terms)])
	next := slices.Clone(x.starts)
	for i, counts := range b.counts {
		for _, c := range counts {
			x.lists[next[c.term]] = posting{int32(i), impact(&c.counts, &b.length[i], &mean, rare[c.term])}
			next[c.term]++
		}
	}
}

// rarity is BM25's weight of a term that occurs in having of n documents.
func rarity(having, n int) float64 {
	return math.Log(1 + (float64(n-having)+.5)/(float64(having)+.5))
}

// impact is BM25F's score of a term in a document. The conversions prevent a
// compiler from fusing operations, which would round differently.
func impact(counts *[fields]uint16, length *[fields]int32, mean *[fields]float64, rare float64) int32 {
	sum := 0.0
	for f := range fields {
		if counts[f] > 0 {
			long := float64(fieldLength[f] * (float64(length[f]) / mean[f]))
			sum += float64(fieldWeight[f] * float64(counts[f]) / (1 - fieldLength[f] + long))
		}
	}
	return int32(math.Round(unit * rare * (saturation + 1) * sum / (saturation + sum)))
}
