package mcpserver

//lint:file-ignore SA1019 clients still have roots, in all revisions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz/approval"
)

// connect starts a server and connects the SDK's client to it.
func connect(t *testing.T, config Config, version string, options *mcp.ClientOptions, roots ...*mcp.Root) *mcp.ClientSession {
	t.Helper()
	if config.Executor == nil {
		config.Executor = &stubExecutor{}
	}
	config.Logger = slog.New(slog.DiscardHandler)
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW, err := os.Pipe() // its other end is seen to close
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- s.Serve(context.Background(), inR, outW)
		outW.Close()
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options)
	client.AddRoots(roots...)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outR, Writer: inW}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		inW.Close()
		outR.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Serve did not return")
		}
	})
	return session
}

func TestTheSDKsClient(t *testing.T) {
	for _, version := range revisions {
		for _, sdkOnly := range []bool{false, true} {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				var progress []string
				s := connect(t, Config{SDKOnly: sdkOnly, Structured: StructuredAlways}, version, &mcp.ClientOptions{
					ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
						mu.Lock()
						defer mu.Unlock()
						progress = append(progress, req.Params.Message)
					},
				})
				ctx := t.Context()
				tools, err := s.ListTools(ctx, nil)
				if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "run_python" {
					t.Fatalf("tools: %v, %v", tools, err)
				}
				for range 3 {
					result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "print héllo <b>", "servers": []string{"fs"}}})
					if err != nil {
						t.Fatal(err)
					}
					text := result.Content[0].(*mcp.TextContent).Text
					structured := result.StructuredContent.(map[string]any)
					if text != "héllo <b>" || result.IsError || structured["stdout"].([]any)[0] != "héllo <b>" || structured["servers"].([]any)[0] != "fs" {
						t.Errorf("result: %q, %v", text, structured)
					}
				}
				result, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "raise X"}})
				if err != nil || !result.IsError {
					t.Errorf("an exception: %v, %v", result, err)
				}
				_, err = s.CallTool(ctx, &mcp.CallToolParams{Name: "rm"})
				var wire *jsonrpc.Error
				if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams || !strings.Contains(wire.Message, `unknown tool "rm"`) {
					t.Errorf("an unknown tool: %v", err)
				}
				params := &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "wait 1200ms"}}
				params.SetProgressToken("p")
				if _, err := s.CallTool(ctx, params); err != nil {
					t.Errorf("with progress: %v", err)
				}
				mu.Lock()
				if len(progress) != 1 || progress[0] != "working on it" {
					t.Errorf("progress: %q", progress)
				}
				mu.Unlock()
				cancelled, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				if _, err := s.CallTool(cancelled, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "wait 1h"}}); err == nil {
					t.Error("a cancelled call succeeded")
				}
				if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "print on"}}); err != nil {
					t.Errorf("after a cancelled call: %v", err)
				}
			})
		}
	}
}

// TestTheSDKsClientSideBySide has many requests of one client in flight.
func TestTheSDKsClientSideBySide(t *testing.T) {
	for _, version := range revisions {
		s := connect(t, Config{}, version, nil)
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for range 10 {
					if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "wait 1ms"}}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
}

func BenchmarkCall(b *testing.B) {
	for _, bench := range []struct {
		name, capabilities string
		sdkOnly            bool
	}{{"short way", "{}", false}, {"SDK", "{}", true}, {"short way, asked", `{"elicitation":{},"roots":{}}`, false}} {
		b.Run(bench.name, func(b *testing.B) {
			s, err := New(Config{
				Executor: &stubExecutor{}, Logger: slog.New(slog.DiscardHandler), SDKOnly: bench.sdkOnly,
				Approvals: approval.New(approval.Config{Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}),
			})
			if err != nil {
				b.Fatal(err)
			}
			inR, inW := io.Pipe()
			outR, outW := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- s.Serve(context.Background(), inR, outW) }()
			out := newTestReader(outR)
			io.WriteString(inW, strings.Replace(fmt.Sprintf(initialize, legacyLatest), `"capabilities":{}`, `"capabilities":`+bench.capabilities, 1)+"\n")
			out.ReadBytes('\n')
			line := []byte(call("1", "print 2", "") + "\n")
			b.ReportAllocs()
			for b.Loop() {
				inW.Write(line)
				if _, err := out.ReadSlice('\n'); err != nil {
					b.Fatal(err)
				}
			}
			inW.Close()
			<-done
		})
	}
}
