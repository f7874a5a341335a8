package o200k_test

import (
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/sallyport/sallyport/internal/connect/o200k"
)

// TestCount compares with another implementation.
func TestCount(t *testing.T) {
	other := codec.NewO200kBase()
	for _, s := range []string{
		"", "a", "hello world", `{"name":"read_file","description":"Reads a file's content.","inputSchema":{"type":"object"}}`,
		"It's 12345678 o'clock\r\n\n  \t indented   ", "naïve façade – 漢字かな交じり文 🙂👩‍👩‍👧", "camelCaseHTTPServer_v2", "\x00\xff", strings.Repeat("ab", 1000), "नमस्ते दुनिया",
	} {
		want, err := other.Count(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := o200k.Count(s); err != nil || got != want {
			t.Errorf("%.40q: got %d (%v), want %d", s, got, err, want)
		}
	}
}
