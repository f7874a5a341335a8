package memory

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/store"
)

func BenchmarkPut4MiB(b *testing.B) {
	s := Open(store.At(b.TempDir()), Limits{})
	value := json.RawMessage(`"` + strings.Repeat("x", 4<<20-2) + `"`)
	for b.Loop() {
		if _, err := s.Put("k", value, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet4MiB(b *testing.B) {
	s := Open(store.At(b.TempDir()), Limits{})
	if _, err := s.Put("k", json.RawMessage(`"`+strings.Repeat("x", 4<<20-2)+`"`), nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Get("k"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetSmall(b *testing.B) {
	s := Open(store.At(b.TempDir()), Limits{})
	if _, err := s.Put("k", json.RawMessage(`{"n":1}`), nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Get("k"); err != nil {
			b.Fatal(err)
		}
	}
}
