package wire

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkDecodeCall decodes the frame of a tool call.
func BenchmarkDecodeCall(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		text := strings.Repeat(`one line of text\n`, size/18)
		frame := []byte(fmt.Sprintf(`{"type":"call","id":7,"run":3,"method":"call_tool","params":{"server":"files","tool":"write","arguments":{"path":"/x","text":"%s"}}}`, text))
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if m, err := DecodeFromGuest(frame); err != nil || m.Call == nil {
					b.Fatal(m, err)
				}
			}
		})
	}
}
