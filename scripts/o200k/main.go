// Command o200k writes the vocabulary of o200k_base for internal/connect/o200k:
// the tokens in the order of their ranks, compressed. The module that it takes
// them from would add 7 MB to the executable.
//
//	go run ./scripts/o200k
package main

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/klauspost/compress/zstd"
	"github.com/tiktoken-go/tokenizer/codec"
)

// tokens is how many there are, without the special ones.
const tokens = 199998

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "o200k:", err)
		os.Exit(1)
	}
}

func run() error {
	c := codec.NewO200kBase()
	var out []byte
	for id := range uint(tokens) {
		token, err := c.Decode([]uint{id})
		if err != nil {
			return err
		}
		out = binary.AppendUvarint(out, uint64(len(token)))
		out = append(out, token...)
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	return os.WriteFile("internal/connect/o200k/vocabulary.zst", w.EncodeAll(out, nil), 0o644)
}
