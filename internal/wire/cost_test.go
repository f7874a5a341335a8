package wire

import (
	"strings"
	"testing"
)

// BenchmarkDecodeFlood shows how much the cost of a megabyte differs, which is
// why package guest measures it.
func BenchmarkDecodeFlood(b *testing.B) {
	const size = 1 << 20
	fill := func(head, part, tail string) []byte {
		return []byte(head + strings.Repeat(part, (size-len(head)-len(tail))/len(part)) + tail)
	}
	for name, body := range map[string][]byte{
		"string":        fill(`{"type":"call","id":1,"run":1,"method":"x","params":"`, "y", `"}`),
		"escapes":       fill(`{"type":"cancel","id":1,"x":"`, `\u00e9`, `"}`),
		"arrays":        fill(`{"type":"cancel","id":1,"x":[`, `[],`, `[]]}`),
		"members":       fill(`{"type":"cancel","id":1`, `,"a":1`, `}`),
		"known members": fill(`{"type":"cancel","id":1`, `,"id":1`, `}`),
		"folded":        fill(`{"type":"cancel","id":1`, `,"ID":1`, `}`),
		"texts":         fill(`{"type":"cancel","id":1`, `,"method":"a"`, `}`),
		"raw":           fill(`{"type":"cancel","id":1`, `,"params":1`, `}`),
		"errors":        fill(`{"type":"cancel","id":1`, `,"error":{"type":"a"}`, `}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := DecodeFromGuest(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
