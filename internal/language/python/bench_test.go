//go:build unix

package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/wire"
)

// The benchmarks measure the guest as a plain process of the host, or, with
//
//	go run ./internal/language/python/testdata/install DIR /usr/bin/python3
//	go test -run '^$' -bench . ./internal/language/python -launcher 'COMMAND'
//
// as COMMAND starts it: for the guest in a plain gVisor sandbox, the absolute
// path of testdata/in-gvisor, then RUNSC DIR. They report medians beside the
// mean, which says little on a busy machine.

// median runs f b.N times and reports how long the median took.
func median(b *testing.B, f func()) {
	b.Helper()
	f()
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		t := time.Now()
		f()
		took = append(took, time.Since(t))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
}

func BenchmarkStart(b *testing.B) {
	median(b, func() {
		p := launch(b)
		if _, err := p.Ready(b.Context()); err != nil {
			b.Fatal(err)
		}
		p.Close()
	})
}

func BenchmarkStartAndPrint(b *testing.B) {
	median(b, func() {
		p := launch(b)
		p.exec(b, "print(1+1)")
		p.Close()
	})
}

func BenchmarkExec(b *testing.B) {
	for _, bench := range []struct{ name, before, code string }{
		{"nothing", "", ""},
		{"print", "", "print(1+1)"},
		{"print with asyncio", "import asyncio", "print(1+1)"},
		{"await with asyncio", "import asyncio", "await asyncio.sleep(0)"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			p := launch(b)
			p.exec(b, bench.before)
			median(b, func() {
				if r := p.exec(b, bench.code); r.err != nil || r.Status != wire.StatusOK {
					b.Fatal(r.err, r.stderr)
				}
			})
		})
	}
}

// timed has the guest time n rounds of code, ten at a time because reading the
// clock is a system call in some sandboxes, and reports what one round took.
func timed(b *testing.B, p *process, code string, n int, call func(context.Context, wire.Call) (json.RawMessage, error)) {
	b.Helper()
	var took []float64
	for b.Loop() {
		batch := min(10, n)
		program := fmt.Sprintf("import time, json\ntook = []\nfor _ in range(%d):\n    t = time.perf_counter()\n    for _ in range(%d):\n        %s\n    took.append((time.perf_counter() - t) * 1e6 / %d)\nprint(json.dumps(took))", n/batch, batch, code, batch)
		r := p.run(b, wire.Exec{Code: program, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, call)
		var one []float64
		if err := json.Unmarshal([]byte(r.stdout), &one); err != nil {
			b.Fatal(err, r.stderr)
		}
		took = append(took, one...)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "p50-µs")
	b.ReportMetric(took[len(took)*95/100], "p95-µs")
}

func BenchmarkCall(b *testing.B) {
	answer := func(context.Context, wire.Call) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[{"type":"text","text":"hello"}]}`), nil
	}
	for _, bench := range []struct{ name, before string }{
		{"without a loop", ""},
		{"in the loop", "import asyncio"},
		{"in the loop, with a thread", "import asyncio, threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			p := launch(b)
			p.exec(b, bench.before)
			timed(b, p, "await mcp_my_echo.say(result=1)", 500, answer)
		})
	}
	b.Run("from another thread", func(b *testing.B) {
		p := launch(b)
		p.exec(b, "import threading\ndef ask():\n    for _ in range(100): runtime.search_tool_docs_sync('x')\n")
		timed(b, p, "x = threading.Thread(target=ask); x.start(); x.join()", 1, func(context.Context, wire.Call) (json.RawMessage, error) {
			return json.RawMessage(`[]`), nil
		})
	})
}

func BenchmarkGather(b *testing.B) {
	p := launch(b)
	p.exec(b, "import asyncio")
	timed(b, p, "await asyncio.gather(*[mcp_my_echo.say(result=1) for _ in range(100)])", 1,
		func(context.Context, wire.Call) (json.RawMessage, error) {
			time.Sleep(50 * time.Millisecond)
			return json.RawMessage(`{"content":[{"type":"text","text":"hello"}]}`), nil
		})
}

func BenchmarkLargeReply(b *testing.B) {
	p := launch(b)
	big := fmt.Appendf(nil, `{"content":[{"type":"text","text":"%s"}]}`, bytes.Repeat([]byte("x"), 10<<20))
	timed(b, p, "len(await mcp_my_echo.say(result=1))", 1,
		func(context.Context, wire.Call) (json.RawMessage, error) { return big, nil })
}

func BenchmarkOutput(b *testing.B) {
	p := launch(b)
	for _, bench := range []struct{ name, code string }{
		{"100000 lines", "for i in range(100000): print(i)"},
		{"10 MB at once", "print('x' * 10_000_000)"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			median(b, func() { p.exec(b, bench.code) })
		})
	}
}
