package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"math"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"sallyport/internal/broker"
)

const toolName = "run_python"

// toolDescription is all that an agent is told before it begins. Together with
// the schema it stays under 200 tokens, however many servers there are; a test
// measures it in every protocol revision.
const toolDescription = "Run Python in a persistent sandbox without network: variables, imports and /workspace stay between calls; " +
	"the last expression is echoed; await works. " +
	"Discover MCP servers: discovered_servers(), await search_tool_docs('query'). " +
	"Call: pass servers=['x'], then await mcp_x.tool(arg=1) returns the value or raises. " +
	"Persist across sessions: save_memory(key, value), load_memory(key), save_tool(func). " +
	"Manual: capability_summary()."

// toolDescriptionWithChoice says less, to stay there also where the schema names
// engines.
const toolDescriptionWithChoice = "Run Python in a persistent sandbox without network: variables and /workspace stay; " +
	"the last expression is echoed. " +
	"Discover MCP servers: discovered_servers(), await search_tool_docs('query'). " +
	"Call: pass servers=['x'], then await mcp_x.tool(arg=1). " +
	"Persist: save_memory(key, value), load_memory(key), save_tool(func). " +
	"Manual: capability_summary()."

// toolSchema has no additionalProperties and no bounds: what is wrong with the
// arguments is answered by the tool, where the agent sees it.
//
// The engines that an agent may choose from are only there where there is a
// choice.
func toolSchema(backends []string) json.RawMessage {
	schema := `{"type":"object","properties":{` +
		`"code":{"type":"string"},` +
		`"servers":{"type":"array","items":{"type":"string"}},` +
		`"timeout":{"type":"integer","description":"seconds"},` +
		`"session":{"type":"string"}`
	if len(backends) > 1 {
		names, _ := json.Marshal(backends) // texts always can be
		schema += `,"backend":{"enum":` + string(names) + `}`
	}
	return json.RawMessage(schema + `},"required":["code"]}`)
}

// addTool registers run_python with the SDK. It has no annotations, because
// those that would be true say what a client assumes without them: code may do
// anything that its servers allow, so the tool is not read-only, may destroy, is
// not idempotent, and reaches an open world.
func (s *Server) addTool(sdk *mcp.Server, stop context.Context) {
	description := toolDescription
	if len(s.config.Backends) > 1 {
		description = toolDescriptionWithChoice
	}
	sdk.AddTool(&mcp.Tool{
		Name:        toolName,
		Description: description,
		InputSchema: toolSchema(s.config.Backends),
	}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(stop, func() { cancel(context.Cause(stop)) })()

		var beat *heartbeat
		if token := req.Params.GetProgressToken(); token != nil {
			beat = startHeartbeat(func(seconds float64, message string) {
				// A lost heartbeat is not worth a failed request.
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: wireToken(token), Progress: seconds, Message: message,
				})
			})
			defer beat.stop()
		}
		run := s.submit(req.Params.Arguments, beat)
		return s.toolResult(run(ctx)), nil
	})
}

// wireToken gives a progress token the form that it had on the wire: the SDK
// reads every number as a float.
func wireToken(token any) any {
	if f, ok := token.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return token
}

// submit takes a place in the session's queue for a call with these arguments
// and returns what runs it.
func (s *Server) submit(arguments json.RawMessage, beat *heartbeat) func(context.Context) *broker.Result {
	req, invalid := parseArguments(arguments)
	if invalid != nil {
		return func(context.Context) *broker.Result { return invalid }
	}
	if beat != nil {
		req.OnOutput = func(_ broker.Stream, p []byte) { beat.output(p) }
		req.OnStatus = func(status string) { beat.output([]byte(status + "\n")) }
	}
	return s.config.Executor.Submit(req)
}

// toolResult is a result in the SDK's form.
func (s *Server) toolResult(r *broker.Result) *mcp.CallToolResult {
	text, value := s.config.Output.present(r)
	structured, err := marshal(value)
	if err != nil {
		structured = nil // cannot happen: strings, numbers and lists of them
	}
	content := []mcp.Content{&mcp.TextContent{Text: text}}
	for _, i := range r.Images {
		content = append(content, &mcp.ImageContent{MIMEType: i.MIMEType, Data: i.Data})
	}
	return &mcp.CallToolResult{
		Content:           content,
		StructuredContent: json.RawMessage(structured),
		IsError:           r.IsError(),
	}
}

// wireResult is the same in our own form, with the members in the SDK's order.
type wireResult struct {
	Meta              json.RawMessage `json:"_meta,omitempty"`
	Content           []any           `json:"content"` // of wireText and wireImage
	StructuredContent *broker.Result  `json:"structuredContent,omitempty"`
	IsError           bool            `json:"isError,omitempty"`
	ResultType        string          `json:"resultType,omitempty"`
}

type wireText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type wireImage struct {
	Type     string `json:"type"`
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
}

// wireContent is a text, and the pictures after it.
func wireContent(text string, images []broker.Image) []any {
	content := []any{wireText{Type: "text", Text: text}}
	for _, i := range images {
		content = append(content, wireImage{Type: "image", MIMEType: i.MIMEType, Data: i.Data})
	}
	return content
}

// marshal is json.Marshal without the escapes for HTML, which cost an agent
// tokens and us time.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
