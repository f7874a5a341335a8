package connect

import (
	"github.com/tiktoken-go/tokenizer/codec"
)

// Tokens returns how many tokens a model reads for each string, in o200k_base.
func Tokens(all []string) ([]int, error) {
	o200k := codec.NewO200kBase()
	out := make([]int, len(all))
	for i, s := range all {
		n, err := o200k.Count(s)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}
