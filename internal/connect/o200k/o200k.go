// Package o200k counts tokens as the models of OpenAI since GPT-4o do.
package o200k

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/dlclark/regexp2/v2"
	"github.com/klauspost/compress/zstd"
)

// vocabulary has every token, in the order of ranks, each after its length.
// scripts/o200k writes it.
//
//go:embed vocabulary.zst
var vocabulary []byte

// words splits a string into what is encoded separately.
const words = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

var load = sync.OnceValues(func() (map[string]int, error) {
	r, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := r.DecodeAll(vocabulary, nil)
	if err != nil {
		return nil, err
	}
	ranks := make(map[string]int, 200_000)
	for len(data) > 0 {
		n, size := binary.Uvarint(data)
		if size <= 0 || n > uint64(len(data)-size) {
			return nil, errors.New("the vocabulary is broken")
		}
		data = data[size:]
		ranks[string(data[:n])] = len(ranks)
		data = data[n:]
	}
	return ranks, nil
})

// Count returns how many tokens a string has.
func Count(s string) (int, error) {
	ranks, err := load()
	if err != nil {
		return 0, err
	}
	split, err := regexp2.Compile(words, regexp2.None)
	if err != nil {
		return 0, err
	}
	n := 0
	m, err := split.FindStringMatch(s)
	for ; m != nil && err == nil; m, err = split.FindNextMatch(m) {
		n += merge(ranks, m.String())
	}
	return n, err
}

// longest bounds the bytes that are merged together: the time grows with their
// square, and the string comes from a server.
const longest = 4096

// merge returns the number of tokens of a word: of neighbouring parts, those
// whose union has the lowest rank become one, until none has a rank.
func merge(ranks map[string]int, word string) int {
	if len(word) > longest {
		return merge(ranks, word[:longest]) + merge(ranks, word[longest:])
	}
	if _, ok := ranks[word]; ok {
		return 1
	}
	starts := make([]int, len(word)+1) // of the parts, and the end
	for i := range starts {
		starts[i] = i
	}
	for len(starts) > 2 {
		best, at := len(ranks), -1
		for i := 0; i+2 < len(starts); i++ {
			if rank, ok := ranks[word[starts[i]:starts[i+2]]]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			break
		}
		starts = append(starts[:at+1], starts[at+2:]...)
	}
	return len(starts) - 1
}
