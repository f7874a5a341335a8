package tail

import (
	"bytes"
	"testing"
)

func TestTail(t *testing.T) {
	for _, chunk := range []int{1, 3, 7, 10, 11, 25} {
		kept := New(10)
		var all []byte
		for i := 0; i < 100; i += chunk {
			part := make([]byte, chunk)
			for k := range part {
				part[k] = byte('a' + (i+k)%26)
			}
			all = append(all, part...)
			if n, err := kept.Write(part); n != chunk || err != nil {
				t.Fatal(n, err)
			}
			want := all[max(0, len(all)-10):]
			if got := kept.Bytes(); !bytes.Equal(got, want) {
				t.Fatalf("chunk %d: %q, want %q", chunk, got, want)
			}
		}
		if kept.Total() != int64(len(all)) {
			t.Errorf("total %d, want %d", kept.Total(), len(all))
		}
	}
}
