//go:build unix

package broker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/sallyport/sallyport/internal/bridge"
)

// BenchmarkExecute is print(1+1) from the broker to the guest, a plain process
// here, and back.
func BenchmarkExecute(b *testing.B) {
	broker, _ := newBroker(b, func(p *parts) {
		p.servers, p.Logger = bridge.Upstream(nil), slog.New(slog.NewTextHandler(io.Discard, nil))
	})
	req := Request{Principal: user, Submission: Submission{Code: "print(1+1)"}}
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
	broker, _ := newBroker(b, nil)
	const calls = 100
	req := Request{Principal: user, Servers: []string{"math"}, Submission: Submission{Code: "for i in range(100): await mcp_math.add(a=1, b=i)"}}
	broker.Execute(context.Background(), req)
	for b.Loop() {
		if r := broker.Execute(context.Background(), req); r.Status != Success {
			b.Fatal(r)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*calls), "µs/call")
}

// BenchmarkFile is the same with a file that the code leaves, and that is kept.
func BenchmarkFile(b *testing.B) {
	for _, keeps := range []bool{false, true} {
		b.Run(fmt.Sprintf("keeps=%v", keeps), func(b *testing.B) {
			most := int64(0)
			if keeps {
				most = 1 << 30
			}
			broker, _ := newKeeper(b, b.TempDir(), most)
			req := Request{Principal: user, Submission: Submission{Code: "open('p.png', 'wb').write(" + pyBytes(png) + ") and None"}}
			broker.Execute(context.Background(), req)
			b.ReportAllocs()
			for b.Loop() {
				if r := broker.Execute(context.Background(), req); r.Status != Success || len(r.Images) != 1 || (r.Kept() != "") != keeps {
					b.Fatal(r)
				}
			}
		})
	}
}
