//go:build unix

package mcpserver

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/fake"
	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// realBroker is a broker whose clients have one server.
type realBroker struct {
	*broker.Broker
	servers *bridge.Bridge
}

// client returns another client.
func (b realBroker) client(t testing.TB) *broker.Client {
	c, err := b.NewClient(rand.Text(), b.servers)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newClient is a client of a broker of its own.
func newClient(t testing.TB) *broker.Client { return newBroker(t).client(t) }

// newBroker is a broker over the real guest, with one server.
func newBroker(t testing.TB) realBroker {
	t.Helper()
	p := &authz.Policy{AllowNoIsolation: true, Servers: []string{"*"}, Require: map[sandbox.Resource]sandbox.Enforcement{}}
	for _, r := range authz.Resources {
		p.Require[r] = sandbox.Absent
	}
	engine := fake.New(fake.Options{})
	if report, err := engine.Probe(t.Context()); err != nil || !report.Usable {
		t.Skipf("the fake engine cannot run here: %+v, %v", report, err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	log := slog.New(slog.DiscardHandler)
	rules := authz.New(authz.Config{Policy: p})
	gate, err := bridge.New(bridge.Config{Source: oneServer{}, Gate: rules})
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.New(broker.Config{
		Template: &session.Template{Engine: engine, Program: python.Program()}, Gate: rules, Logger: log,
		Sessions: session.NewSet(session.Options{Logger: log, Grace: 20 * time.Second}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		gate.Close()
	})
	return realBroker{b, gate}
}

// oneServer is a source of a server that adds.
type oneServer struct{}

func (oneServer) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "math", Alias: "math"}}
}

func (oneServer) Open(context.Context, string) (bridge.Server, error) { return oneServer{}, nil }

func (oneServer) Tools(context.Context) ([]tool.Tool, error) { return addTool, nil }

var addTool = []tool.Tool{{Name: "add", Alias: "add", Raw: json.RawMessage(`{"name":"add"}`),
	InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}`)}}

func (oneServer) CallTool(_ context.Context, _ string, arguments json.RawMessage) (json.RawMessage, error) {
	var args struct{ A, B int }
	if err := json.Unmarshal(arguments, &args); err != nil {
		return nil, err
	}
	return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}],"structuredContent":{"result":%d}}`, args.A+args.B, args.A+args.B)), nil
}

// TestEndToEnd is a real client, the real server and broker, and the real
// guest in a plain process.
func TestEndToEnd(t *testing.T) {
	for _, tt := range []struct {
		version string
		sdkOnly bool
	}{{"2024-11-05", false}, {"2025-11-25", false}, {"2026-07-28", false}, {"2025-11-25", true}} {
		t.Run(fmt.Sprintf("%s, SDK only %v", tt.version, tt.sdkOnly), func(t *testing.T) {
			t.Parallel()
			s := connect(t, Config{Executor: newClient(t), SDKOnly: tt.sdkOnly, Structured: StructuredAlways}, tt.version, nil)
			run := func(code string, arguments map[string]any) (string, map[string]any, bool) {
				t.Helper()
				if arguments == nil {
					arguments = map[string]any{}
				}
				arguments["code"] = code
				r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_python", Arguments: arguments})
				if err != nil {
					t.Fatalf("%s: %v", code, err)
				}
				structured, _ := r.StructuredContent.(map[string]any)
				return r.Content[0].(*mcp.TextContent).Text, structured, r.IsError
			}
			text := func(code, want string, isError bool, arguments map[string]any) {
				t.Helper()
				if got, _, failed := run(code, arguments); got != want || failed != isError {
					t.Errorf("%s: %q, isError %v; want %q", code, got, failed, want)
				}
			}
			text("x = 6 * 7", "Success (no output)", false, nil)
			text("x", "42", false, nil)
			text("print('a')\nprint()\nprint('b')", "a\n\nb", false, nil)
			text("import sys; sys.exit(3)", "status: error\nexit: 3", true, nil)
			text("await mcp_math.add(a=1, b=2)", "3", false, map[string]any{"servers": []string{"math"}})
			text("1", "status: error\nSandbox error: Unknown MCP server: foo (nearest: math)", true, map[string]any{"servers": []string{"foo"}})
			text(" ", "status: validation_error\nMissing 'code' argument", true, nil)
			got, structured, failed := run("def f():\n    return 1/0\nf()", nil)
			if !failed || !strings.HasPrefix(got, "status: error\nexit: 1\nstderr:\nTraceback") || !strings.HasSuffix(got, "ZeroDivisionError: division by zero") ||
				structured["exitCode"] != 1.0 || structured["status"] != "error" {
				t.Errorf("exception: %q, %v", got, structured)
			}
			got, structured, failed = run("import time\nprint('partial', flush=True)\ntime.sleep(60)", map[string]any{"timeout": 5})
			if !failed || !strings.HasPrefix(got, "status: timeout\npartial\nstderr:\n") || structured["interrupted"] != true || structured["timeoutSeconds"] != 5.0 {
				t.Errorf("timeout: %q, %v", got, structured)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "time.sleep(60)"}}); err == nil {
				t.Error("a cancelled call was answered")
			}
			text("x", "42", false, nil)
			got, structured, _ = run("print('x' * (3 << 20))\nprint('end')", nil)
			if len(got) > 1<<20+1000 || !strings.HasSuffix(got, "\nend") || structured["truncated"] == nil {
				t.Errorf("flood: %d bytes, truncated %v", len(got), structured["truncated"])
			}
			got, structured, _ = run("import os; os._exit(9)", nil)
			if structured["stateLost"] == nil || !strings.Contains(got, "state lost: the interpreter ended with status 9") {
				t.Errorf("os._exit: %q", got)
			}
			got, _, _ = run("'x' in globals()", nil)
			if got != "False" {
				t.Errorf("after it: %q", got)
			}
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					want := fmt.Sprint(i)
					r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": want}})
					if err != nil || r.Content[0].(*mcp.TextContent).Text != want {
						t.Errorf("side by side: %v, %v", r, err)
					}
				})
			}
			all.Wait()
		})
	}
}

// TestTheClientGoesWhileCodeRuns: nothing outlives it.
func TestTheClientGoesWhileCodeRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("depends on speed: code must run after 100 ms and end within 3 s")
	}
	inR, inW := mustPipe(t)
	outR, outW := mustPipe(t)
	s, err := New(Config{Executor: newClient(t), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.Background(), inR, outW) }()
	send := func(lines ...string) { _, _ = io.WriteString(inW, strings.Join(lines, "\n")+"\n") }
	send(fmt.Sprintf(initialize, legacyLatest), initialized, call("1", "1", ""))
	out := bufio.NewReader(outR)
	for range 2 {
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	send(call("2", "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass", ""))
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	_, _ = inW.Close(), outR.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took >= linger {
		t.Errorf("it took %v", took)
	}
}

// TestCodeIsStoppedWithTheOutput: no one can read what it answers.
func TestCodeIsStoppedWithTheOutput(t *testing.T) {
	r, w := mustPipe(t)
	s, err := New(Config{Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	in := strings.NewReader(fmt.Sprintf(initialize, legacyLatest) + "\n" + initialized + "\n" + call("1", "wait 1h", "") + "\n")
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), in, w) }()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil { // the answer to initialize
		t.Fatal(err)
	}
	_ = r.Close() // nothing is written any more that would show it
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("Serve goes on")
	}
}

// BenchmarkPrint is a client's print(1+1) over pipes: the server, the broker,
// and the real guest in a plain process.
func BenchmarkPrint(b *testing.B) {
	for _, bench := range []struct {
		name    string
		sdkOnly bool
	}{{"short way", false}, {"SDK", true}} {
		b.Run(bench.name, func(b *testing.B) {
			s, err := New(Config{Executor: newClient(b), Logger: slog.New(slog.DiscardHandler), SDKOnly: bench.sdkOnly})
			if err != nil {
				b.Fatal(err)
			}
			inR, inW := mustPipe(b)
			outR, outW := mustPipe(b)
			done := make(chan error, 1)
			go func() { done <- s.Serve(context.Background(), inR, outW) }()
			out := bufio.NewReader(outR)
			send := func(line string) {
				if _, err := io.WriteString(inW, line+"\n"); err != nil {
					b.Fatal(err)
				}
				if _, err := out.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
			send(fmt.Sprintf(initialize, legacyLatest))
			line := call("1", "print(1+1)", "")
			send(line)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				send(line)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
			b.ReportMetric(float64(took[len(took)*95/100].Nanoseconds())/1e3, "p95-µs")
			inW.Close()
			<-done
		})
	}
}

func mustPipe(b testing.TB) (r, w *os.File) {
	b.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}
