// Command server is what the official conformance suite tests to learn whether
// Sallyport's tasks are those of the protocol: the tools that the suite asks
// for, over HTTP by the official Go SDK, with tasks by the code that answers
// calls of run_python with them.
//
//	server       prints its address and serves until standard input ends
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/store"
)

// pause is how long the jobs take that have no duration of their own: longer than
// the moment after which a call becomes a task.
const (
	moment = 50 * time.Millisecond
	pause  = 300 * time.Millisecond
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve() error {
	dir, err := os.MkdirTemp("", "sallyport-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	set := tasks.New(tasks.Options{Log: log, Dir: store.At(dir), Moment: moment})
	defer set.Close(context.Canceled)

	capabilities := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}
	capabilities.AddExtension(tasks.Extension, nil)
	server := mcp.NewServer(&mcp.Implementation{Name: "sallyport-tasks", Version: "1"}, &mcp.ServerOptions{Logger: log, Capabilities: capabilities})
	for name, run := range tools {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if !tasks.Declared(req.Params.Meta) && (name == "failing_job" || name == "test_tool_with_task") {
				return nil, tasks.Undeclared()
			}
			return run(ctx, req, nil)
		})
	}
	err = set.Install(server, tasks.Hooks{
		Owner: func(client string) tasks.Owner { return tasks.Owner{Name: "suite", Client: client} },
		Work: func(_ context.Context, req *mcp.CallToolRequest) *tasks.Work {
			run := tools[req.Params.Name]
			// A tool that asks first becomes a task once it has its answer.
			if run == nil || req.Params.Name == "test_tool_with_task" && len(req.Params.InputResponses) == 0 {
				return nil
			}
			return &tasks.Work{Run: func(ctx context.Context, t *tasks.Task) (any, error) { return run(ctx, req, t) }}
		},
	})
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, Logger: log})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		listener.Close()
	}()
	_ = http.Serve(listener, handler) // until the listener is closed
	return nil
}

// A tool does what the suite asks for. The task is nil where its client has none.
type tool func(context.Context, *mcp.CallToolRequest, *tasks.Task) (*mcp.CallToolResult, error)

var tools = map[string]tool{
	"greet": func(_ context.Context, req *mcp.CallToolRequest, _ *tasks.Task) (*mcp.CallToolResult, error) {
		var in struct{ Name string }
		_ = json.Unmarshal(req.Params.Arguments, &in)
		return text("Hello, " + in.Name + "!"), nil
	},
	"slow_compute": func(ctx context.Context, req *mcp.CallToolRequest, _ *tasks.Task) (*mcp.CallToolResult, error) {
		var in struct{ Seconds float64 }
		_ = json.Unmarshal(req.Params.Arguments, &in)
		return text("computed"), wait(ctx, time.Duration(in.Seconds*float64(time.Second)))
	},
	"failing_job": func(ctx context.Context, _ *mcp.CallToolRequest, _ *tasks.Task) (*mcp.CallToolResult, error) {
		r := text("it failed")
		r.IsError = true
		return r, wait(ctx, pause)
	},
	"protocol_error_job": func(ctx context.Context, _ *mcp.CallToolRequest, _ *tasks.Task) (*mcp.CallToolResult, error) {
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke down"}
	},
	"confirm_delete": func(ctx context.Context, _ *mcp.CallToolRequest, t *tasks.Task) (*mcp.CallToolResult, error) {
		answer, err := ask(ctx, t, "Delete it?")
		return text("answered: " + answer), err
	},
	"multi_input": func(ctx context.Context, _ *mcp.CallToolRequest, t *tasks.Task) (*mcp.CallToolResult, error) {
		type reply struct {
			answer string
			err    error
		}
		replies := make(chan reply, 2)
		for _, question := range []string{"Your name?", "Sure?"} {
			go func() {
				answer, err := ask(ctx, t, question)
				replies <- reply{answer, err}
			}()
		}
		all := ""
		for range 2 {
			r := <-replies
			if r.err != nil {
				return nil, r.err
			}
			all += r.answer + " "
		}
		return text("answered: " + all), nil
	},
	"test_tool_with_task": func(ctx context.Context, req *mcp.CallToolRequest, _ *tasks.Task) (*mcp.CallToolResult, error) {
		for _, answer := range req.Params.InputResponses {
			if form, ok := answer.(*mcp.ElicitResult); ok {
				return text(fmt.Sprintf("Hello, %v!", form.Content["name"])), wait(ctx, pause)
			}
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"user_name": form("Your name?")}}, nil
	},
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func form(message string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"name":{"type":"string"},"confirm":{"type":"boolean"}}}`)}
}

func ask(ctx context.Context, t *tasks.Task, question string) (string, error) {
	if t == nil {
		return "", tasks.Undeclared()
	}
	answer, err := t.Ask(ctx, tasks.Question{Method: "elicitation/create", Params: form(question)})
	return string(answer), err
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
