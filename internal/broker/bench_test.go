//go:build unix

package broker

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"sallyport/internal/sandbox/fake"
)

// BenchmarkExecute is print(1+1) from the broker to the guest, a plain process
// here, and back.
func BenchmarkExecute(b *testing.B) {
	broker, err := New(Config{Backend: newEngine(b, fake.Options{}), Policy: lax(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	req := Request{Code: "print(1+1)"}
	broker.Execute(context.Background(), req)
	b.ReportAllocs()
	for b.Loop() {
		if r := broker.Execute(context.Background(), req); r.Status != Success {
			b.Fatal(r)
		}
	}
}

// BenchmarkTool is one call of a tool from inside the sandbox, of many in one
// execution.
func BenchmarkTool(b *testing.B) {
	broker, err := New(Config{Backend: newEngine(b, fake.Options{}), Policy: lax(), Servers: servers{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	const calls = 100
	req := Request{Code: "for i in range(100): await mcp_math.add(a=1, b=i)", Servers: []string{"math"}}
	broker.Execute(context.Background(), req)
	for b.Loop() {
		if r := broker.Execute(context.Background(), req); r.Status != Success {
			b.Fatal(r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*calls), "µs/call")
}
