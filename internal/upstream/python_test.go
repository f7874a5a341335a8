//go:build unix

package upstream

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// pythonVariable names a Python interpreter that has the official SDK, mcp 2.
const pythonVariable = "SALLYPORT_PYTHON_MCP"

const pythonServer = `
import sys
from mcp.server.mcpserver import MCPServer
print("a line that has no place here", flush=True)
s = MCPServer("py")
@s.tool()
def add(a: int, b: int) -> int:
    return a + b
@s.tool()
def repeat(n: int) -> str:
    return "é" * n
s.run("stdio")
`

// A second implementation of both eras, independent of the Go SDK.
func TestPythonServer(t *testing.T) {
	python := os.Getenv(pythonVariable)
	if python == "" {
		t.Skip(pythonVariable + " is not set")
	}
	for _, known := range []era{eraUnknown, eraStateless} {
		def := definitions.New("py", "", definitions.Launch{Command: python, Args: []string{"-c", pythonServer}})
		m := manage(t, Options{}, def)
		m.set.Load().slots["py"].entry.era = known
		s := running(t, m, "py")
		if tools, err := s.Tools(t.Context()); err != nil || len(tools) != 2 || tools[0].OutputSchema == nil {
			t.Fatal(tools, err)
		}
		sum := must(t)(s.CallTool(t.Context(), "add", json.RawMessage(`{"a":9007199254740993,"b":0}`)))
		if !strings.Contains(string(sum), `{"result":9007199254740993}`) {
			t.Errorf("%s", sum)
		}
		if got := text(t, must(t)(s.CallTool(t.Context(), "repeat", json.RawMessage(`{"n":1000000}`)))); got != strings.Repeat("é", 1_000_000) {
			t.Errorf("%d bytes", len(got))
		}
		if raw, err := s.CallTool(t.Context(), "add", json.RawMessage(`{"a":"x"}`)); err == nil && !strings.Contains(string(raw), `"isError":true`) {
			t.Errorf("%s", raw)
		}
		t.Logf("%s, started in %v", s.Info().ProtocolVersion, s.Info().StartTook.Round(time.Millisecond))
	}
}
