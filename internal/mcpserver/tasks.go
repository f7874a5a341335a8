package mcpserver

import (
	"context"
	"encoding/json"
	"errors"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
)

// errEnded is the error of a task whose code ended with this program or its session.
var errEnded = errors.New("the Sallyport that ran the code ended before it did; run it again")

// owner returns whose tasks a client sees that calls itself so.
func (s *Server) owner(client string) tasks.Owner {
	return tasks.Owner{Name: authz.Local("").Owner, Client: label(client), ID: s.config.ClientID}
}

// addTasks has calls of run_python answered with tasks.
func (s *Server) addTasks(sdk *mcp.Server, c *conn) error {
	if s.config.Tasks == nil {
		return nil
	}
	return s.config.Tasks.Install(sdk, tasks.Hooks{
		Owner: s.owner,
		Work: func(ctx context.Context, req *mcp.CallToolRequest) *tasks.Work {
			if req.Params.Name != toolName || c.wantsRootsOf(req) || req.Params.RequestState != "" && !c.takeRoots(req.Params) {
				return nil
			}
			who, _ := c.caller(req)
			return c.work(who, req.Params.Arguments, sdkHeartbeat(ctx, req), func(r *broker.Result) any { return c.toolResult(who.Client, r) })
		},
	})
}

// work returns a call of run_python as one that may become a task. present returns
// the form of the call's result.
func (c *conn) work(who authz.Principal, arguments json.RawMessage, beat *heartbeat, present func(*broker.Result) any) *tasks.Work {
	if beat == nil {
		beat = startHeartbeat(nil)
	}
	x := c.submit(who, arguments, beat, true)
	return &tasks.Work{
		Answered: beat.stop,
		Run: func(ctx context.Context, t *tasks.Task) (any, error) {
			defer beat.stop()
			t.Describe(beat.describe)
			defer c.askDuring(ctx, ctx, x, c.byTask(x, t))()
			r := c.run(ctx, x.run)
			switch cause := context.Cause(ctx); {
			case !r.IsError():
			case errors.Is(cause, tasks.ErrCancelled):
				return nil, tasks.ErrCancelled
			case r.Ended:
				return nil, errEnded
			}
			return present(r), nil
		},
	}
}

// answerWork does the work of a call on the fast path and answers it.
func (c *conn) answerWork(ctx context.Context, call fastCall, client string, work *tasks.Work) {
	value, task, err := c.server.config.Tasks.Call(ctx, c.server.owner(client), *work)
	var answer any
	switch {
	case task != nil:
		answer = wireTask{c.server.resultMeta, task, "task"}
	case err != nil:
		c.respond(&sdkrpc.Response{ID: call.id, Error: &sdkrpc.Error{Code: sdkrpc.CodeInternalError, Message: err.Error()}})
		return
	default:
		result := value.(wireResult)
		result.Meta, result.ResultType = c.server.resultMeta, "complete"
		answer = result
	}
	defer c.unread.enter(c.stop)()
	data, err := appendResponse(call.rawID, answer)
	if err != nil { // cannot happen: see toolResult
		c.log.Error("an answer could not be encoded", "error", err)
	}
	defer c.unread.add(len(data))()
	_ = c.answer(call.id, data) // write has recorded a failure
}

// wireTask is a task as an answer or, with what it is about, as a notification.
type wireTask struct {
	Meta json.RawMessage `json:"_meta,omitempty"`
	*tasks.Info
	ResultType string `json:"resultType,omitempty"`
}

// declaresTasks reports whether the client declares the Tasks extension.
func (m requestMeta) declaresTasks() bool {
	var capabilities struct {
		Extensions map[string]json.RawMessage `json:"extensions"`
	}
	if !m.declares(tasks.Extension, &capabilities) {
		return false
	}
	_, declared := capabilities.Extensions[tasks.Extension]
	return declared
}

// listen answers a request to listen that names tasks, which the SDK does not know.
// It reports whether it was one. There is nothing else to listen to here.
func (c *conn) listen(req *sdkrpc.Request, raw json.RawMessage) bool {
	if req.Method != "subscriptions/listen" || c.server.config.Tasks == nil {
		return false
	}
	var params struct {
		Meta          json.RawMessage `json:"_meta"`
		Notifications struct {
			IDs []string `json:"taskIds"`
		} `json:"notifications"`
	}
	if json.Unmarshal(req.Params, &params) != nil || len(params.Notifications.IDs) == 0 {
		return false
	}
	meta, ok := parseMeta(params.Meta)
	if !ok || meta.version == nil || meta.client == nil || meta.capabilities == nil {
		return false // the SDK says what is wrong
	}
	ctx, cancel := context.WithCancelCause(c.stop)
	entry := &request{cancel: cancel, raw: raw}
	if err := c.register(req.ID, entry); err != nil {
		cancel(nil)
		c.refuse(entry, err)
		return true
	}
	if !meta.declaresTasks() {
		cancel(nil)
		c.respond(&sdkrpc.Response{ID: req.ID, Error: tasks.Undeclared()})
		return true
	}
	c.mu.Lock()
	finishing := c.finishing
	if !finishing {
		c.fast.Add(1)
	}
	c.mu.Unlock()
	if finishing {
		cancel(nil)
		return true
	}
	go func() {
		defer c.fast.Done()
		defer cancel(nil)
		c.follow(ctx, req.ID, raw, c.server.owner(clientOf(meta.key())), params.Notifications.IDs)
	}()
	return true
}

// follow sends notifications of tasks until all have ended.
func (c *conn) follow(ctx context.Context, id sdkrpc.ID, raw json.RawMessage, who tasks.Owner, ids []string) {
	about, err := marshal(map[string]any{"io.modelcontextprotocol/subscriptionId": raw})
	if err != nil { // cannot happen: it was read as JSON
		return
	}
	ids = c.server.config.Tasks.Watchable(who, ids)
	type notifications struct {
		IDs []string `json:"taskIds,omitempty"`
	}
	c.notify("notifications/subscriptions/acknowledged", struct {
		Meta          json.RawMessage `json:"_meta"`
		Notifications notifications   `json:"notifications"`
	}{about, notifications{ids}})
	c.server.config.Tasks.Watch(ctx, who, ids, func(task *tasks.Info) {
		c.notify(tasks.NotificationMethod, wireTask{Meta: about, Info: task})
	})
	result, err := marshal(struct {
		Meta       json.RawMessage `json:"_meta"`
		ResultType string          `json:"resultType"`
	}{about, "complete"})
	if err == nil {
		c.respond(&sdkrpc.Response{ID: id, Result: result})
	}
}

// notify sends a notification.
func (c *conn) notify(method string, params any) {
	data, err := marshal(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", method, params})
	if err == nil {
		_ = c.write(data)
	}
}

// respond answers a request that did not reach the SDK.
func (c *conn) respond(resp *sdkrpc.Response) {
	data, err := c.encode(resp)
	if err == nil {
		_ = c.answer(resp.ID, data) // write has recorded a failure
	}
}
