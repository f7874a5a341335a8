package authz

import (
	"context"
	"encoding/json"

	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// An Action is something that may be allowed, with the facts that rules read.
// The types below are all there are. Facts that are not filled in deny.
type Action interface {
	// describe names the action and what it uses: a tool, a prompt, an engine.
	describe() (action, item string)
	// on returns the server; uses is false for an action that has none.
	on() (s *Server, uses bool)
	// arguments returns as JSON what it is done with; nil for nothing.
	arguments() json.RawMessage
}

// Server is what rules know about an MCP server.
type Server struct {
	Name     string
	Disabled bool
	// Offer is not empty for a server of a project that the user does not trust:
	// "changed" where the project changed since it was trusted.
	Offer string
	// ToolAllowed applies the lists of tools in the server's definition; nil
	// allows none.
	ToolAllowed func(tool string) bool
	// Identify tells the server from every other one, also one of the same name: a
	// person agrees to calls of what is started or reached, not of a name. Nil: the
	// name does.
	Identify func(context.Context) (string, error)
	// Started is the command line or the URL, fit to be shown to a person.
	Started string
}

// Form is how something that a server describes stands to what the user
// accepted.
type Form int

// The forms. The zero value is denied where changes are refused.
const (
	FormNotCompared Form = iota
	FormAccepted
	FormChanged    // the server described it differently when it was accepted
	FormNew        // the server did not have it then
	FormDiffers    // one of the two above
	FormUnlisted   // the server does not list it, and its list changed
	FormUnreadable // what was accepted cannot be read
)

// RunCode runs code in a sandbox.
type RunCode struct {
	Engine  *sandbox.Report
	Folders []sandbox.Mount // of the host, that the code sees
}

// RunBatch hands code over to a batch service. What the policy demands of the
// service travels with the run, see [Gate.Remote].
type RunBatch struct{ Service string }

// FindServer tells code that a server exists, and how the user can enable it.
type FindServer struct{ Server *Server }

// DescribeServer tells code what a server is for and which tools it has. The
// server is started if that is not known.
type DescribeServer struct{ Server *Server }

// LoadServer grants a server to an execution: it is started and lists its tools.
type LoadServer struct{ Server *Server }

// Inquire lets a server ask the user, or the agent's client, while it works on a
// call.
type Inquire struct {
	Server  *Server
	Request *inquiry.Request
}

// name is the action of each method.
func (a Inquire) name() string {
	switch {
	case a.Request == nil:
		return "inquire"
	case a.Request.Method == inquiry.Sampling:
		return "sample"
	case a.Request.Method == inquiry.Roots:
		return "list_roots"
	}
	return "elicit"
}

// ListServer asks a granted server for its tools, resources or prompts.
type ListServer struct {
	Server  *Server
	Granted bool // to the execution
}

// CallTool calls a tool of a server.
type CallTool struct {
	Server      *Server
	Granted     bool
	Tool        string
	Listed      bool // the server lists it
	Form        Form
	Annotations tool.Annotations // of the form that the user accepted
	Description string           // of the tool, in one line, for a question
	Arguments   json.RawMessage  // one JSON object, or empty for none
	Counts      *Counts          // of the execution
	// Behind returns how many calls, of any tool, the code has made besides that
	// wait in the sandbox until others are answered; nil: none. The code says so.
	Behind func() int
}

// ReadResource reads a resource of a server.
type ReadResource struct {
	Server  *Server
	Granted bool
	URI     string
	Form    Form
	Counts  *Counts // of the execution
}

// GetPrompt gets a prompt of a server.
type GetPrompt struct {
	Server    *Server
	Granted   bool
	Prompt    string
	Form      Form
	Arguments json.RawMessage
	Counts    *Counts // of the execution
}

// RequestServer adds a server that is not configured, for the life of the
// process. Of a definition that says more than a command line or a URL, neither
// is filled in, so that no pattern allows it: environment variables, for
// instance, can make any program run another one.
type RequestServer struct {
	Server  *Server
	Command []string
	URL     string
	// Definition is all that the code asks for, as a person is to see it.
	Definition json.RawMessage
}

func (a RunCode) describe() (action, item string) {
	if a.Engine == nil {
		return "run_code", ""
	}
	return "run_code", a.Engine.Backend
}
func (a RunBatch) describe() (action, item string)       { return "run_batch", a.Service }
func (a Inquire) describe() (action, item string)        { return a.name(), "" }
func (a FindServer) describe() (action, item string)     { return "find_server", "" }
func (a DescribeServer) describe() (action, item string) { return "describe_server", "" }
func (a LoadServer) describe() (action, item string)     { return "load_server", "" }
func (a ListServer) describe() (action, item string)     { return "list_server", "" }
func (a CallTool) describe() (action, item string)       { return "call_tool", a.Tool }
func (a ReadResource) describe() (action, item string)   { return "read_resource", "" }
func (a GetPrompt) describe() (action, item string)      { return "get_prompt", a.Prompt }
func (a RequestServer) describe() (action, item string)  { return "request_server", "" }

func (a RunCode) on() (*Server, bool)        { return nil, false }
func (a RunBatch) on() (*Server, bool)       { return nil, false }
func (a Inquire) on() (*Server, bool)        { return a.Server, true }
func (a FindServer) on() (*Server, bool)     { return a.Server, true }
func (a DescribeServer) on() (*Server, bool) { return a.Server, true }
func (a LoadServer) on() (*Server, bool)     { return a.Server, true }
func (a ListServer) on() (*Server, bool)     { return a.Server, true }
func (a CallTool) on() (*Server, bool)       { return a.Server, true }
func (a ReadResource) on() (*Server, bool)   { return a.Server, true }
func (a GetPrompt) on() (*Server, bool)      { return a.Server, true }
func (a RequestServer) on() (*Server, bool)  { return a.Server, true }

func (a RunCode) arguments() json.RawMessage        { return nil }
func (a RunBatch) arguments() json.RawMessage       { return nil }
func (a Inquire) arguments() json.RawMessage        { return nil }
func (a FindServer) arguments() json.RawMessage     { return nil }
func (a DescribeServer) arguments() json.RawMessage { return nil }
func (a LoadServer) arguments() json.RawMessage     { return nil }
func (a ListServer) arguments() json.RawMessage     { return nil }
func (a CallTool) arguments() json.RawMessage       { return a.Arguments }
func (a ReadResource) arguments() json.RawMessage   { return inJSON(map[string]string{"uri": a.URI}) }
func (a GetPrompt) arguments() json.RawMessage      { return a.Arguments }
func (a RequestServer) arguments() json.RawMessage {
	if a.URL != "" {
		return inJSON(map[string]string{"url": a.URL})
	}
	return inJSON(map[string][]string{"command": a.Command})
}

func inJSON(v any) json.RawMessage {
	raw, _ := json.Marshal(v) // strings never fail
	return raw
}
