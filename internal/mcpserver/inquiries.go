package mcpserver

//lint:file-ignore SA1019 clients still have roots and sampling, in all revisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	sdkrpc "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
)

const (
	// approvalKey and inquiryKey name the one question in a result: whether calls are
	// allowed, or what a server asks.
	approvalKey, inquiryKey = "approval", "input"
	// maxSampling bounds the samples that a client is asked for at a time by a call.
	maxSampling = 4
)

// input is a question as a client is asked it.
type input struct {
	tasks.Question
	key string
}

// inputOf returns how a client is asked a question; ok is false where that is too
// long for it. legacy: see approval.Question.Form.
func inputOf(q *approval.Question, legacy bool) (in input, ok bool) {
	if q.Asks == nil {
		form, ok := q.Form(legacy)
		return input{tasks.Question{Method: inquiry.Elicitation, Params: form}, approvalKey}, ok
	}
	method, params := q.Request(legacy)
	return input{tasks.Question{Method: method, Params: params}, inquiryKey}, true
}

// again returns the question with a reason why an answer to it does not count.
func (in input) again(why error) input {
	switch params := in.Params.(type) {
	case approval.Form:
		in.Params = params.Again(why)
	case json.RawMessage:
		var members map[string]json.RawMessage // they stay as they are
		var message string
		if json.Unmarshal(params, &members) != nil || json.Unmarshal(members["message"], &message) != nil {
			return in // cannot happen: it was encoded here
		}
		message = fmt.Sprintf("This answer does not count: %s. Please answer again.\n\n%s", shortened(why.Error()), message)
		members["message"], _ = marshal(message) // a string can be encoded
		in.Params = members
	}
	return in
}

// forPrograms reports whether a question is one that the client alone can answer. If
// it does not, no one does, and the server must not wait for it.
func forPrograms(q *approval.Question) bool { return !q.ForPeople() }

// reply passes on what a client answered to a server's question. The error says why
// that does not count.
func (c *conn) reply(x *submitted, q *approval.Question, result json.RawMessage) error {
	_, err := c.server.config.Approvals.Answer(approval.Answer{
		ID: q.ID, Revision: q.Revision, Choice: approval.Reply, Result: result, By: approval.By("client", x.client),
	})
	if err == nil && q.Asks.Method == inquiry.Roots {
		c.mu.Lock()
		defer c.mu.Unlock()
		x.roots = result
	}
	return err
}

// giveUp ends a question that the client has not answered, and no one else can.
func (c *conn) giveUp(x *submitted, q *approval.Question) {
	_, err := c.server.config.Approvals.Answer(approval.Answer{
		ID: q.ID, Revision: q.Revision, Choice: approval.No, Words: "the client did not answer it", By: approval.By("client", x.client),
	})
	if err != nil {
		c.log.Debug("a question has ended before it was refused", "question", q.ID)
	}
}

// unanswered ends, or leaves to others, a question that a client did not answer.
// ctx is done if it has ended.
func (c *conn) unanswered(ctx context.Context, x *submitted, q *approval.Question, err error) {
	if ctx.Err() == nil {
		var refused *sdkrpc.Error
		if q.Asks != nil && errors.As(err, &refused) { // clients quote in it what a person answered
			c.log.Warn("the client could not be asked what a server asks", "question", q.ID, "code", refused.Code)
		} else {
			c.log.Warn("the client could not be asked", "question", q.ID, "error", err)
		}
	}
	if forPrograms(q) {
		c.giveUp(x, q)
	}
}

// namedRoots returns the roots that the client has named to a call before: clients of
// the stateless revisions do not say when they change, but a call has them once.
func (c *conn) namedRoots(x *submitted) json.RawMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return x.roots
}

// asker asks the client, and returns its result.
type asker func(context.Context, tasks.Question) (json.RawMessage, error)

// byRequest asks by a request.
func (c *conn) byRequest(ctx context.Context, q tasks.Question) (json.RawMessage, error) {
	if q.Method == inquiry.Roots {
		return c.listRoots(ctx)
	}
	return c.ask(ctx, q.Method, q.Params)
}

// byTask asks by the task that a call becomes.
func (c *conn) byTask(x *submitted, t *tasks.Task) asker {
	return func(ctx context.Context, q tasks.Question) (json.RawMessage, error) {
		if q.Method == inquiry.Roots {
			if roots := c.namedRoots(x); roots != nil {
				return roots, nil
			}
		}
		return t.Ask(ctx, q)
	}
}

// responseTo returns the client's result in the repetition of a call that asked, or
// nil if it is not one of the question's method. The SDK has decoded it: all that it
// knows is in it.
func responseTo(method string, response mcp.InputResponse) json.RawMessage {
	ok := false
	switch response.(type) {
	case *mcp.ElicitResult:
		ok = method == inquiry.Elicitation
	case *mcp.CreateMessageResult, *mcp.CreateMessageWithToolsResult:
		ok = method == inquiry.Sampling
	case *mcp.ListRootsResult:
		ok = method == inquiry.Roots
	}
	raw, err := marshal(response)
	if !ok || err != nil || string(raw) == "null" {
		return nil
	}
	return raw
}
