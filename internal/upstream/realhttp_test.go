//go:build unix

package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// listening starts a program that serves on a port of its environment variable
// PORT, and returns the port once it listens there.
func listening(t *testing.T, name string, args ...string) int {
	t.Helper()
	for range 5 { // another program may be faster with a port
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := free.Addr().(*net.TCPAddr).Port
		_ = free.Close()
		var output bytes.Buffer
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), fmt.Sprintf("PORT=%d", port))
		cmd.Stdout, cmd.Stderr = &output, &output
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // it is killed
		}()
		stop := func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			select {
			case <-ended:
				t.Logf("%s ended: %s", name, output.String())
				deadline = time.Time{}
				continue
			default:
			}
			if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second); err == nil {
				_ = c.Close()
				t.Cleanup(stop)
				return port
			}
		}
		stop()
	}
	t.Fatal("the server does not listen")
	return 0
}

// The reference server of the TypeScript SDK over both kinds of HTTP.
func TestNPMEverythingOverHTTP(t *testing.T) {
	dir := os.Getenv(npmVariable)
	if dir == "" {
		t.Skip(npmVariable + " is not set")
	}
	script := filepath.Join(dir, "node_modules", ".bin", "mcp-server-everything")
	for mode, path := range map[string]string{"streamableHttp": "/mcp", "sse": "/sse"} {
		t.Run(mode, func(t *testing.T) {
			port := listening(t, "node", script, mode)
			m := manage(t, Options{}, over("x", fmt.Sprintf("http://127.0.0.1:%d%s", port, path), definitions.Auto))
			s := running(t, m, "x")
			tools, err := s.Tools(t.Context())
			if err != nil || !hasTool(tools, "echo") {
				t.Fatalf("%d tools, %v", len(tools), err)
			}
			if got := text(t, must(t)(s.CallTool(t.Context(), "echo", json.RawMessage(`{"message":"héllo"}`)))); !strings.Contains(got, "héllo") {
				t.Error(got)
			}
			host := &fakeHost{}
			_, err = s.CallTool(WithHost(t.Context(), host), "trigger-long-running-operation", json.RawMessage(`{"duration":1,"steps":4}`))
			if _, steps, _ := host.heard(); err != nil || len(steps) != 4 {
				t.Error(steps, err)
			}
			t.Logf("%s, %s, started in %v", s.Info().Transport, s.Info().ProtocolVersion, s.Info().StartTook.Round(time.Millisecond))
		})
	}
}

const pythonHTTPServer = `
import os, sys
from mcp.server.mcpserver import MCPServer
s = MCPServer("py")
@s.tool()
def add(a: int, b: int) -> int:
    return a + b
s.run(sys.argv[1], port=int(os.environ["PORT"]))
`

// The Python SDK's server over both kinds of HTTP.
func TestPythonServerOverHTTP(t *testing.T) {
	python := os.Getenv(pythonVariable)
	if python == "" {
		t.Skip(pythonVariable + " is not set")
	}
	for mode, want := range map[string]struct{ path, transport string }{
		"streamable-http": {"/mcp", "streamable HTTP"}, "sse": {"/sse", "HTTP with SSE"},
	} {
		t.Run(mode, func(t *testing.T) {
			port := listening(t, python, "-c", pythonHTTPServer, mode)
			m := manage(t, Options{}, over("x", fmt.Sprintf("http://127.0.0.1:%d%s", port, want.path), definitions.Auto))
			s := running(t, m, "x")
			if s.Info().Transport != want.transport {
				t.Error(s.Info().Transport)
			}
			sum := must(t)(s.CallTool(t.Context(), "add", json.RawMessage(`{"a":9007199254740993,"b":0}`)))
			if !strings.Contains(string(sum), `{"result":9007199254740993}`) {
				t.Errorf("%s", sum)
			}
			t.Logf("%s, %s, started in %v", s.Info().Transport, s.Info().ProtocolVersion, s.Info().StartTook.Round(time.Millisecond))
		})
	}
}
