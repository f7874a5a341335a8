package bridge

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// BenchmarkCallTool is a tool call from the frame's parameters to a server that
// does nothing, through the gate. The shapes of the results of a tool are
// learned if the tool has no output schema.
func BenchmarkCallTool(b *testing.B) {
	b.Run("declared", func(b *testing.B) { benchmarkCallTool(b, `{"type":"object"}`) })
	b.Run("learned", func(b *testing.B) { benchmarkCallTool(b, "") })
}

func benchmarkCallTool(b *testing.B, output string) {
	read := newTool("read", "reads")
	read.OutputSchema = json.RawMessage(output)
	result := json.RawMessage(`{"content":[{"type":"text","text":"[{\"id\":1,\"title\":\"a title\",\"user\":{\"login\":\"x\"}}]"}]}`)
	s := &stub{
		definitions: []upstream.Definition{{Name: "fs", Alias: "fs"}},
		servers: map[string]*stubServer{"fs": {tools: []tool.Tool{read}, call: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return result, nil
		}}},
	}
	x := newBridge(b, s, 0).Begin(self, []string{"fs"})
	if _, err := x.Prepare(b.Context()); err != nil {
		b.Fatal(err)
	}
	call := wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"fs","tool":"read","arguments":{"path":"/data/x"}}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Call(context.Background(), call); err != nil {
			b.Fatal(err)
		}
	}
}
