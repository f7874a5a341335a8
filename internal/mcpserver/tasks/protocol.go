package tasks

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Since is the first revision of the protocol that has the extension.
const Since = "2026-07-28"

// NotificationMethod is the method of notifications of tasks.
const NotificationMethod = "notifications/tasks"

// Declared reports whether the client of a request declares the extension, given
// the request's metadata.
func Declared(meta map[string]any) bool {
	version, _ := meta[mcp.MetaKeyProtocolVersion].(string)
	capabilities, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := capabilities["extensions"].(map[string]any)
	_, declared := extensions[Extension]
	return declared && version >= Since
}

// Undeclared is the error for a request that needs the extension, of a client that
// does not declare it.
func Undeclared() *jsonrpc.Error {
	return &jsonrpc.Error{
		Code:    mcp.CodeMissingRequiredClientCapabilities,
		Message: "the client does not declare the extension " + Extension,
		Data:    json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + Extension + `":{}}}}`),
	}
}

// Hooks connect a Set to a server.
type Hooks struct {
	// Owner returns whose tasks a client sees, which calls itself so.
	Owner func(client string) Owner
	// Work returns what a call is, or nil if it never becomes a task. It is asked
	// for calls of clients that declare the extension.
	Work func(context.Context, *mcp.CallToolRequest) *Work
}

// Install has a server of the SDK answer the extension's requests, and answer
// calls with tasks. Its capabilities must name the extension.
func (s *Set) Install(server *mcp.Server, hooks Hooks) error {
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if wrong := misrouted(req); wrong != nil {
				return nil, wrong
			}
			call, ok := req.(*mcp.CallToolRequest)
			if !ok || method != "tools/call" || !Declared(call.Params.Meta) {
				return next(ctx, method, req)
			}
			owner := hooks.Owner(clientName(call.Params.Meta))
			if !s.Room(owner) { // it is answered as for other clients
				return next(ctx, method, req)
			}
			work := hooks.Work(ctx, call)
			if work == nil {
				return next(ctx, method, req)
			}
			value, task, err := s.Call(ctx, owner, *work)
			if task != nil {
				return &taskResult{Info: task, ResultType: "task"}, nil
			}
			if err != nil {
				return nil, err
			}
			result, ok := value.(mcp.Result)
			if !ok {
				return nil, fmt.Errorf("a call has come to a %T", value)
			}
			return complete{result}, nil
		}
	})
	for method, answer := range map[string]func(Owner, *params) (*taskResult, bool){
		"tasks/get": func(owner Owner, p *params) (*taskResult, bool) {
			task := s.Get(owner, p.ID)
			return &taskResult{Info: task}, task != nil
		},
		"tasks/update": func(owner Owner, p *params) (*taskResult, bool) {
			return &taskResult{}, s.Update(owner, p.ID, p.Answers)
		},
		"tasks/cancel": func(owner Owner, p *params) (*taskResult, bool) {
			return &taskResult{}, s.Cancel(owner, p.ID)
		},
	} {
		err := mcp.AddReceivingCustomMethod(server, method, func(_ context.Context, _ *mcp.ServerSession, p *params) (*taskResult, error) {
			if p == nil {
				p = &params{}
			}
			if version, _ := p.Meta[mcp.MetaKeyProtocolVersion].(string); version < Since {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("%s needs the protocol revision %s", method, Since)}
			}
			if !Declared(p.Meta) {
				return nil, Undeclared()
			}
			result, ok := answer(hooks.Owner(clientName(p.Meta)), p)
			if !ok {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no such task: it never existed, has expired, or belongs to another client"}
			}
			result.ResultType = "complete"
			return result, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// misrouted returns the error for a request about a task whose HTTP header names
// another one, by which a proxy may have routed it. The SDK checks other headers.
func misrouted(req mcp.Request) error {
	p, ok := req.GetParams().(*params)
	extra := req.GetExtra()
	if !ok || p == nil || extra == nil || extra.Header == nil || extra.Header.Get("Mcp-Name") == p.ID {
		return nil
	}
	return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "the header Mcp-Name must be the ID of the task"}
}

// complete is a call's result. The SDK says that it is complete only where its own
// handler has returned it.
type complete struct{ mcp.Result }

// MarshalJSON implements json.Marshaler.
func (c complete) MarshalJSON() ([]byte, error) {
	data, err := marshal(c.Result)
	if err != nil || len(data) < len(`{"":0}`) || data[0] != '{' {
		return data, err
	}
	return append(data[:len(data)-1], `,"resultType":"complete"}`...), nil
}

// clientName returns what the client of a request calls itself.
func clientName(meta map[string]any) string {
	info, _ := meta[mcp.MetaKeyClientInfo].(map[string]any)
	name, _ := info["name"].(string)
	return name
}

// params are those of all methods of the extension.
type params struct {
	mcp.ParamsBase
	ID      string                     `json:"taskId"`
	Answers map[string]json.RawMessage `json:"inputResponses"`
}

// taskResult is a task, or no more than an acknowledgement.
type taskResult struct {
	mcp.ResultBase
	*Info
	ResultType string `json:"resultType"`
}
