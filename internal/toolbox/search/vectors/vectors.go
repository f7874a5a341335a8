// Package vectors maps short strings to vectors, so that strings about the same
// subject have nearly the same direction.
//
// A vector is the sum of the vectors of the string's word pieces, which are in a
// table in the executable. tools/searchmodel fitted that table to a sentence model
// and describes how. Nothing is unpacked: rows are read in place, so the table
// costs a process only the pages that its strings touch. All arithmetic is in
// integers; the same string gives the same vector on every machine.
package vectors

import (
	_ "embed"
	"math"
	"sync"
)

// Dim is the length of a vector.
const Dim = 256

//go:embed table.bin
var raw string

// A table is in memory as tools/searchmodel wrote it, little-endian:
//
//	count                uint32   rows
//	offsets  [count+1]   uint32   where a row's piece starts in pieces
//	slots    [65536]     uint16   rows by the hash of their piece, plus one; 0 means none
//	scales   [count]     uint16   the factor for a row's numbers
//	numbers  [count*Dim/2] byte   two numbers from -7 to 7 each, plus 8; low half first
//	pieces                        the pieces, in the order of their rows: most common first
type table struct {
	count   int
	offsets string
	slots   string
	scales  string
	numbers string
	text    string
	unknown int
}

// embedded is the table in this executable: slices of the executable's own
// data.
var embedded = sync.OnceValue(func() *table { return open(raw) })

func open(raw string) *table {
	t := &table{count: int(u32(raw, 0))}
	raw = raw[4:]
	cut := func(n int) string {
		part := raw[:n]
		raw = raw[n:]
		return part
	}
	t.offsets = cut(4 * (t.count + 1))
	t.slots = cut(2 * slots)
	t.scales = cut(2 * t.count)
	t.numbers = cut(t.count * Dim / 2)
	t.text = raw
	t.unknown = t.find("[UNK]")
	return t
}

func u32(s string, at int) uint32 {
	s = s[at : at+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

// slots is the number of slots for the hashes of pieces. If one is taken, the
// next free one is used.
const slots = 1 << 16

// A hash is FNV-1a of a piece's bytes. A piece that continues a word is written
// with ## in front.
type hash uint32

const (
	begins hash = 2166136261
	prime  hash = 16777619
)

var goesOn = begins.and('#').and('#')

// and returns the hash after one more byte.
func (h hash) and(b byte) hash { return (h ^ hash(b)) * prime }

// row finds the piece that has a hash: text, after ## if it continues a word.
// It returns -1 if there is none.
func (t *table) row(h hash, on bool, text string) int {
	for at := int(h % slots); ; at = (at + 1) % slots {
		row := int(t.slots[2*at]) | int(t.slots[2*at+1])<<8
		if row == 0 {
			return -1
		}
		piece := t.piece(row - 1)
		if on {
			if len(piece) != len(text)+2 || piece[:2] != "##" {
				continue
			}
			piece = piece[2:]
		}
		if piece == text {
			return row - 1
		}
	}
}

// find finds a piece as it is written.
func (t *table) find(piece string) int {
	h := begins
	for i := range len(piece) {
		h = h.and(piece[i])
	}
	return t.row(h, false, piece)
}

// Vector is the direction of a string. The zero Vector belongs to the empty
// string and is similar to nothing.
type Vector struct {
	at [Dim]int8
	// one is the reciprocal of the vector's length.
	one float64
}

// maxPieces bounds how many pieces of a string are used.
const maxPieces = 512

// Of returns the vector of text.
func Of(text string) Vector {
	var sum [Dim]int32
	t, n := embedded(), 0
	t.pieces(text, func(row int) {
		if n++; n <= maxPieces && row != t.unknown {
			t.add(row, &sum)
		}
	})
	return scaled(&sum)
}

// add adds a row to a sum.
func (t *table) add(row int, sum *[Dim]int32) {
	scale := int32(t.scales[2*row]) | int32(t.scales[2*row+1])<<8
	numbers := t.numbers[row*Dim/2:][:Dim/2]
	for i := range Dim / 2 {
		b := int32(numbers[i])
		sum[2*i] += (b&15 - 8) * scale
		sum[2*i+1] += (b>>4 - 8) * scale
	}
}

// scaled keeps a sum's direction in few bits.
func scaled(sum *[Dim]int32) Vector {
	var v Vector
	most := int64(0)
	for _, s := range sum {
		most = max(most, int64(s), -int64(s))
	}
	if most == 0 {
		return v
	}
	square := int64(0)
	for i, s := range sum {
		// Round to the nearest, halves away from 0.
		n := 2*127*int64(s) + most
		if s < 0 {
			n = 2*127*int64(s) - most
		}
		v.at[i] = int8(n / (2 * most))
		square += int64(v.at[i]) * int64(v.at[i])
	}
	v.one = 1 / math.Sqrt(float64(square))
	return v
}

// Likeness returns the cosine of two vectors, from -1 to 1.
func Likeness(a, b *Vector) float64 {
	var s0, s1, s2, s3 int32
	for i := 0; i < Dim; i += 4 {
		s0 += int32(a.at[i]) * int32(b.at[i])
		s1 += int32(a.at[i+1]) * int32(b.at[i+1])
		s2 += int32(a.at[i+2]) * int32(b.at[i+2])
		s3 += int32(a.at[i+3]) * int32(b.at[i+3])
	}
	return float64(s0+s1+s2+s3) * a.one * b.one
}

// Known reports whether a word in lower case is in the table itself, rather
// than composed of pieces: a common word or name.
func Known(word string) bool { return embedded().find(word) >= 0 }

// piece returns the piece of a row.
func (t *table) piece(row int) string {
	return t.text[u32(t.offsets, 4*row):u32(t.offsets, 4*row+4)]
}
