package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/tracecontext"
	"github.com/sallyport/sallyport/internal/wire"
)

const toolName = "run_python"

// toolTitle and toolDescription are all that an agent reads before it
// begins. Clients search tools by words instead of showing them all: they have
// the words of the tasks that the tool is for, and the example names a
// server that many have. With the schema they stay under 200 tokens, however many
// servers there are; tests measure it in every protocol revision, and search.
const (
	toolTitle       = "Run code, analyse files"
	toolDescription = "Run Python code in a persistent sandbox, no network: analyze a file, call MCP tools; " +
		"last expression is echoed. " +
		"Discover: discovered_servers(), await search_tool_docs('query'). " +
		"Call: servers=['github'], await mcp_github.create_issue(...). " +
		"Persist: save_memory(k, v), load_memory(k), save_tool(func). " +
		"Manual: capability_summary()."
	// toolDescriptionWithChoice is shorter, to stay under the limit when the schema
	// names engines or a few environments, and toolDescriptionWithChoices when it names
	// both or many environments.
	toolDescriptionWithChoice = "Run Python code in a persistent sandbox: analyze a file, call MCP tools; " +
		"last expression is echoed. " +
		"Discover: await search_tool_docs('query'). " +
		"Call: servers=['github'], await mcp_github.create_issue(...). " +
		"Persist: save_memory(). " +
		"Manual: capability_summary()."
	toolDescriptionWithChoices = "Run Python code in a persistent sandbox: analyze a file, call MCP tools. " +
		"Discover: await search_tool_docs('query'). " +
		"Call: servers=['github'], await mcp_github.create_issue(...). " +
		"Manual: capability_summary()."
)

// The names of environments are in the schema if they take no more tokens than this,
// by our estimate: few fit with each description. Others are in the manual.
const (
	fewNames  = 12
	manyNames = 20 // if there are no names of engines
)

// toolMeta asks clients that know the key to show the tool from the first turn.
var toolMeta = mcp.Meta{"anthropic/alwaysLoad": true}

// toolSchema has no additionalProperties and no bounds: the tool itself answers
// wrong arguments, so that the agent sees the answer.
//
// It names the engines and the environments that an agent may choose from only if
// there is a choice.
func toolSchema(backends, environments []string) json.RawMessage {
	schema := `{"type":"object","properties":{` +
		`"code":{"type":"string"},` +
		`"servers":{"type":"array","items":{"type":"string"}},` +
		`"timeout":{"type":"integer","description":"seconds"},` +
		`"session":{"type":"string"}`
	if len(backends) > 1 {
		names, _ := json.Marshal(backends) // strings can always be encoded
		schema += `,"backend":{"enum":` + string(names) + `}`
	}
	if len(environments) > 0 {
		form := `"type":"string"`
		if names := enumOf(environments, len(backends) > 1); names != "" {
			form = `"enum":` + names
		}
		schema += `,"env":{` + form + `}`
	}
	return json.RawMessage(schema + `},"required":["code"]}`)
}

// enumOf returns the names of environments for the schema, or nothing if they do not
// fit.
func enumOf(environments []string, engines bool) string {
	names, _ := json.Marshal(environments) // strings can always be encoded
	if n := tokens(string(names)); n > manyNames || n > fewNames && engines {
		return ""
	}
	return string(names)
}

// describe returns the longest description that fits.
func describe(backends, environments []string) string {
	engines := len(backends) > 1
	switch {
	case !engines && len(environments) == 0:
		return toolDescription
	case engines && len(environments) > 0, tokens(enumOf(environments, engines)) > fewNames:
		return toolDescriptionWithChoices
	}
	return toolDescriptionWithChoice
}

// addTool registers run_python with the SDK. It has no annotations, because the
// true ones are what a client assumes without any: code may do anything that
// its servers allow, so the tool is not read-only, may destroy, is not
// idempotent, and reaches an open world.
func (s *Server) addTool(sdk *mcp.Server, c *conn) {
	environments := s.config.environmentChoice()
	sdk.AddTool(&mcp.Tool{
		Meta:        toolMeta,
		Name:        toolName,
		Title:       toolTitle,
		Description: describe(s.config.Backends, environments),
		InputSchema: toolSchema(s.config.Backends, environments),
	}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		beat := sdkHeartbeat(ctx, req)
		if beat != nil {
			defer beat.stop()
		}
		var r *broker.Result
		var asks *parked
		if c.wantsRootsOf(req) {
			return nil, c.asksOnWire(rootsInput, rootsKey)
		}
		who, stateless := c.caller(req)
		if req.Params.RequestState != "" && !c.takeRoots(req.Params) {
			var err error
			if r, asks, err = c.repeated(ctx, req, beat); err != nil {
				return nil, err
			}
		} else {
			if asksHow(who.Takes, stateless) == asksByResult {
				beat = orSilent(beat)
			}
			r, asks = c.perform(ctx, c.submit(who, req.Params.Arguments, beat, false), stateless)
		}
		if asks != nil {
			return nil, c.asksOnWire(asks.input, asks.state)
		}
		return c.toolResult(who.Client, r), nil
	})
}

// sdkHeartbeat starts the heartbeats of a call that the SDK handles. It returns nil
// if its client wants none.
func sdkHeartbeat(ctx context.Context, req *mcp.CallToolRequest) *heartbeat {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	return startHeartbeat(func(seconds float64, message string) {
		// A lost heartbeat is not worth a failed request.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: wireToken(token), Progress: seconds, Message: message,
		})
	})
}

// wireToken restores the form that a progress token had on the wire: the SDK
// reads every number as a float.
func wireToken(token any) any {
	if f, ok := token.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return token
}

// principal returns who a call that the SDK handles is for: the local user,
// through the client that sent it.
func principal(req *mcp.CallToolRequest) authz.Principal {
	var p authz.Principal
	if info := req.ClientInfo(); info != nil {
		p = authz.Local(label(info.Name))
	} else {
		p = authz.Local("")
	}
	parent, _ := req.Params.Meta["traceparent"].(string)
	state, _ := req.Params.Meta["tracestate"].(string)
	p.Trace = tracecontext.Parse(parent, state)
	return p
}

// caller is principal with what the client can be asked. It reports whether the call
// is one of the stateless revisions.
func (c *conn) caller(req *mcp.CallToolRequest) (p authz.Principal, stateless bool) {
	p = principal(req)
	p.Takes, stateless = c.takes(req)
	return p, stateless
}

// submit takes a place in the session's queue for a call with these arguments.
// The call must be run. As a task, it waits to the end.
func (c *conn) submit(principal authz.Principal, arguments json.RawMessage, beat *heartbeat, task bool) *submitted {
	if c.server.config.Approvals == nil { // through which everything is asked
		principal.Takes = inquiry.Takes{}
	}
	x := &submitted{client: principal.Client, beat: beat, takes: principal.Takes}
	req, invalid, hints := parseArguments(arguments)
	if invalid == nil {
		invalid = c.server.config.refuse(req.Env)
	}
	if invalid != nil {
		x.run = func(context.Context) *broker.Result { return withHints(invalid, hints) }
		return x
	}
	if c.server.config.Approvals != nil {
		x.id, x.argument = strings.ToLower(rand.Text()[:12]), digest(arguments)
		x.waits, x.session, x.backend = strings.TrimSpace(req.Code) == "", req.Session, req.Backend
	}
	req.Principal, req.RequestID = principal, x.id
	req.HTML = c.showsPages()
	req.Within = c.server.config.within(principal.Client)
	if task {
		req.Within, req.Whole = c.server.config.Tasks.Moment(), true
	}
	if beat != nil {
		req.Activity = &beat.activity
		req.OnOutput = func(_ wire.Stream, p []byte) { beat.output(p) }
		req.OnStatus = func(status string) { beat.output([]byte(status + "\n")) }
	}
	x.run = c.place(req)
	if len(hints) > 0 {
		run := x.run
		x.run = func(ctx context.Context) *broker.Result { return withHints(run(ctx), hints) }
	}
	return x
}

// run runs a call whose place in its session's queue was taken, once there is room
// for its answer.
func (c *conn) run(ctx context.Context, run func(context.Context) *broker.Result) *broker.Result {
	if err := c.unread.wait(ctx); err != nil {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_ = run(gone) // which gives up the place
		return &broker.Result{Status: broker.Failed, Summary: err.Error(), Error: err.Error()}
	}
	return run(ctx)
}

// toolResult returns a result as the SDK has it.
func (c *conn) toolResult(client string, r *broker.Result) *mcp.CallToolResult {
	text, value := c.answerOf(client, r)
	var structured any // nil: none
	if value != nil {
		if encoded, err := marshal(value); err == nil { // strings, numbers and lists of them can be encoded
			structured = json.RawMessage(encoded)
		}
	}
	content := []mcp.Content{&mcp.TextContent{Text: text}}
	for _, i := range r.Images {
		content = append(content, &mcp.TextContent{Text: i.Name()}, &mcp.ImageContent{MIMEType: i.MIMEType, Data: i.Data})
	}
	if more := r.MorePictures(); more != "" {
		content = append(content, &mcp.TextContent{Text: more})
	}
	for _, l := range c.links(r) {
		content = append(content, l.sdk())
	}
	return &mcp.CallToolResult{
		Content:           content,
		StructuredContent: structured,
		IsError:           r.IsError(),
	}
}

// wireResult is the same for our own encoder, with the members in the SDK's
// order.
type wireResult struct {
	Meta              json.RawMessage `json:"_meta,omitempty"`
	Content           []any           `json:"content"` // of wireText, wireImage and link
	StructuredContent *broker.Result  `json:"structuredContent,omitempty"`
	IsError           bool            `json:"isError,omitempty"`
	ResultType        string          `json:"resultType,omitempty"`
}

func (c *conn) wireResult(text string, structured, r *broker.Result) wireResult {
	return wireResult{Content: c.wireContent(text, r), StructuredContent: structured, IsError: r.IsError()}
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

// wireContent returns the text, the pictures and the links as content blocks, each
// picture after its name.
func (c *conn) wireContent(text string, r *broker.Result) []any {
	content := []any{wireText{Type: "text", Text: text}}
	for _, i := range r.Images {
		content = append(content, wireText{Type: "text", Text: i.Name()}, wireImage{Type: "image", MIMEType: i.MIMEType, Data: i.Data})
	}
	if more := r.MorePictures(); more != "" {
		content = append(content, wireText{Type: "text", Text: more})
	}
	for _, l := range c.links(r) {
		content = append(content, l)
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
