package toon

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// benchmarkInput is a result as tools give it: some fields, then rows.
func benchmarkInput() json.RawMessage {
	var b strings.Builder
	b.WriteString(`{"status":"success","total":20000,"items":[`)
	for i := range 20_000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"title":"Item %d, of many","price":%d.25,"tags":null,"owner":{"name":"Ada","active":true}}`, i, i, i)
	}
	b.WriteString(`]}`)
	return json.RawMessage(b.String())
}

func BenchmarkMarshal(b *testing.B) {
	input := benchmarkInput()
	b.SetBytes(int64(len(input)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Marshal(input, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	document, err := Marshal(benchmarkInput(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(document)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := unmarshal(document, Options{}, strictly); err != nil {
			b.Fatal(err)
		}
	}
}
