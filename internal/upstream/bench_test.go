//go:build unix

package upstream

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// percentiles runs f over and over and reports the middle and the tail.
func percentiles(b *testing.B, f func()) {
	b.Helper()
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		f()
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(times[len(times)*95/100].Nanoseconds())/1e3, "p95-µs")
}

// BenchmarkPipeEcho is the floor: a line to another process and back, with no
// protocol at all.
func BenchmarkPipeEcho(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"=line-echo")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	r := bufio.NewReader(out)
	line := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1}}}` + "\n")
	percentiles(b, func() {
		if _, err := in.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkCallTool is our client with a server that does nothing.
func BenchmarkCallTool(b *testing.B) {
	s := running(b, manage(b, Options{}, define(b, "x", "fast")), "x")
	args := json.RawMessage(`{"a":1}`)
	percentiles(b, func() {
		if _, err := s.CallTool(b.Context(), "echo", args); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkCallToolSDK is the official client with the same server.
func BenchmarkCallToolSDK(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"=fast")
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(b.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	params := &mcp.CallToolParams{Name: "echo", Arguments: json.RawMessage(`{"a":1}`)}
	percentiles(b, func() {
		if _, err := session.CallTool(b.Context(), params); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkCallToolHTTP is our client over HTTP, and BenchmarkCallToolHTTPSDK the
// official one, with the same server in this process.
func BenchmarkCallToolHTTP(b *testing.B) {
	web := httptest.NewServer(&webServer{quiet: true})
	defer web.Close()
	s := running(b, manage(b, Options{}, over("x", web.URL, definitions.Auto)), "x")
	args := json.RawMessage(`{"a":1}`)
	percentiles(b, func() {
		if _, err := s.CallTool(b.Context(), "t", args); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkCallToolHTTPSDK(b *testing.B) {
	web := httptest.NewServer(&webServer{quiet: true})
	defer web.Close()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(b.Context(), &mcp.StreamableClientTransport{Endpoint: web.URL}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	params := &mcp.CallToolParams{Name: "t", Arguments: json.RawMessage(`{"a":1}`)}
	percentiles(b, func() {
		if _, err := session.CallTool(b.Context(), params); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkCallToolParallel(b *testing.B) {
	s := running(b, manage(b, Options{}, define(b, "x", "fast")), "x")
	args := json.RawMessage(`{"a":1}`)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := s.CallTool(b.Context(), "echo", args); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkCall10MB(b *testing.B) {
	s := running(b, manage(b, Options{}, define(b, "x", "plain")), "x")
	b.SetBytes(10 << 20)
	percentiles(b, func() {
		if raw, err := s.CallTool(b.Context(), "big", json.RawMessage(`{"MB":10}`)); err != nil || len(raw) < 10<<20 {
			b.Fatal(len(raw), err)
		}
	})
}

// BenchmarkPipe10MB is the floor of a large result: the bytes alone.
func BenchmarkPipe10MB(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(10 << 20)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVariable+"=plain")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	buf := make([]byte, 1<<20)
	percentiles(b, func() {
		fmt.Fprintln(in, `{"id":1,"method":"tools/call","params":{"name":"big","arguments":{"MB":10}}}`)
		for left := 10 << 20; left > 0; {
			n, err := out.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			left -= n
			if left < 4096 { // what is around the text
				break
			}
		}
		// The rest of the line is in the pipe; read it without blocking for
		// more.
		for buf[0] = 0; ; {
			n, err := out.Read(buf)
			if err != nil || n > 0 && buf[n-1] == '\n' {
				break
			}
		}
	})
}

// lineEcho and fastServer are the peers of the benchmarks.
func lineEcho(in *bufio.Reader) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if _, err := os.Stdout.Write(line); err != nil {
			return
		}
	}
}

func fastServer(in *bufio.Reader) {
	var out []byte
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		var r struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(line, &r) != nil || r.ID == nil {
			continue
		}
		result := okResult
		if r.Method == "initialize" {
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fast","version":"0"}}`
		}
		out = fmt.Appendf(out[:0], "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", r.ID, result)
		if _, err := io.Writer(os.Stdout).Write(out); err != nil {
			return
		}
	}
}
