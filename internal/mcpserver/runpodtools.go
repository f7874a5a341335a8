package mcpserver

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/runpodtools"
)

// addRunPodTools registers the tools of the first RunPod server. Their
// descriptions come on top of run_python's 200 tokens, so they are only there
// if they were configured.
func (s *Server) addRunPodTools(sdk *mcp.Server) {
	tools := s.config.RunPod
	if tools == nil {
		return
	}
	answer := func(a *runpodtools.Answer) *mcp.CallToolResult {
		r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}, IsError: a.IsError}
		for _, i := range a.Images {
			r.Content = append(r.Content, &mcp.ImageContent{MIMEType: i.MIMEType, Data: i.Data})
		}
		return r
	}
	sdk.AddTool(&mcp.Tool{
		Name:        runpodtools.Execute,
		Description: "Run Python code on RunPod and return its output, errors and return code.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}`),
	}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct {
			Code *string `json:"code"`
		}
		if err := json.Unmarshal(req.Params.Arguments, &in); err != nil || in.Code == nil || strings.TrimSpace(*in.Code) == "" {
			return answer(&runpodtools.Answer{Text: "Code execution failed: 'code' must be a string with Python code", IsError: true}), nil
		}
		var status func(string)
		if beat := sdkHeartbeat(ctx, req); beat != nil {
			defer beat.stop()
			status = func(text string) { beat.output([]byte(text + "\n")) }
		}
		return answer(tools.Execute(ctx, principal(req), *in.Code, status)), nil
	})
	sdk.AddTool(&mcp.Tool{
		Name:        runpodtools.Status,
		Description: "Tell whether the RunPod endpoint has workers, and what waits in its queue.",
		InputSchema: json.RawMessage(`{"type":"object"}`),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return answer(tools.Status(ctx)), nil
	})
}
