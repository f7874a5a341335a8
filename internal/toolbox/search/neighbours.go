package search

import (
	_ "embed"
	"sort"
	"strings"
)

// Neighbours in meaning of common stems, made by tools/searchmodel. Little-endian:
//
//	count            uint32  stems
//	offsets [count+1] uint32 where a stem starts in stems
//	near  [count*8]  uint16  neighbours, nearest first; 0xffff means none
//	like  [count*8]  byte    similarity, in hundredths
//	stems                    the stems, in the order of their bytes
//
//go:embed neighbours.bin
var neighbourTable string

const perStem = 8

// neighbours are those of one stem in the table; row -1 has none.
type neighbours struct{ row int }

func neighbourCount() int { return int(le32(neighbourTable, 0)) }

// tableStem returns the stem of a row.
func tableStem(row int) string {
	n := neighbourCount()
	text := 4 + 4*(n+1) + 3*perStem*n
	return neighbourTable[text+int(le32(neighbourTable, 4+4*row)) : text+int(le32(neighbourTable, 8+4*row))]
}

func neighboursOf(stem string) neighbours {
	row, ok := sort.Find(neighbourCount(), func(i int) int { return strings.Compare(stem, tableStem(i)) })
	if !ok {
		return neighbours{-1}
	}
	return neighbours{row}
}

// each calls f with every neighbour and its similarity in hundredths.
func (n neighbours) each(f func(stem string, likeness int)) {
	if n.row < 0 {
		return
	}
	count := neighbourCount()
	near := neighbourTable[4+4*(count+1):]
	like := near[2*perStem*count:]
	for i := n.row * perStem; i < (n.row+1)*perStem; i++ {
		if row := int(near[2*i]) | int(near[2*i+1])<<8; row != 0xffff {
			f(tableStem(row), int(like[i]))
		}
	}
}

// neighbourShare is the weight of a neighbour of the greatest similarity, in
// hundredths. The weight falls with the square of the similarity: many words
// are somewhat similar, few mean the same.
const neighbourShare = 80

// neighbourWeight returns the weight of a neighbour relative to the word
// itself.
func neighbourWeight(likeness int) int32 {
	return int32(whole * neighbourShare * likeness * likeness / (100 * 100 * 100))
}

func le32(s string, at int) uint32 {
	s = s[at : at+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}
