package mcpserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/batch/runpod"
	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/runpodtools"
)

// onRunPod answers what it was asked.
type onRunPod struct{}

func (onRunPod) End(authz.Principal, string) {}
func (onRunPod) Written(context.Context, authz.Principal, string, string, uint64) (string, error) {
	return "", errors.New("not kept")
}

func (onRunPod) Submit(r broker.Request) func(context.Context) *broker.Result {
	return func(context.Context) *broker.Result {
		zero := 0
		return &broker.Result{Status: broker.Success, ExitCode: &zero, Stdout: []string{r.Backend + " ran " + r.Code},
			Images: []broker.Image{{MIMEType: "image/png", Data: []byte("png")}}}
	}
}

func (onRunPod) Health(context.Context) (*runpod.Health, error) {
	return &runpod.Health{Endpoint: "ep1", Idle: 1}, nil
}

// TestRunPodTools: they are there where they were asked for, and nowhere else.
func TestRunPodTools(t *testing.T) {
	names := func(s *mcp.ClientSession) string {
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		return strings.Join(names, " ")
	}
	if got := names(connect(t, Config{}, "", nil)); got != toolName {
		t.Errorf("tools: %s", got)
	}
	s := connect(t, Config{RunPod: &runpodtools.Tools{Executor: onRunPod{}, Pulse: onRunPod{}, Timeout: time.Second}}, "", nil)
	if got := names(s); got != "check_runpod_status execute_python_code run_python" {
		t.Errorf("tools: %s", got)
	}
	call := func(name string, arguments any) (string, *mcp.CallToolResult) {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
		if err != nil {
			t.Fatal(err)
		}
		return r.Content[0].(*mcp.TextContent).Text, r
	}
	text, r := call("execute_python_code", map[string]any{"code": "print(1)"})
	if !strings.Contains(text, "--- OUTPUT ---\nrunpod ran print(1)\n") || r.IsError || len(r.Content) != 2 {
		t.Errorf("%s", text)
	}
	if image, ok := r.Content[1].(*mcp.ImageContent); !ok || image.MIMEType != "image/png" || string(image.Data) != "png" {
		t.Errorf("%+v", r.Content[1])
	}
	for _, arguments := range []any{map[string]any{"code": " "}, map[string]any{"code": 5}, map[string]any{}} {
		if text, r := call("execute_python_code", arguments); !r.IsError {
			t.Errorf("%v: %s", arguments, text)
		}
	}
	if text, r := call("check_runpod_status", nil); r.IsError || !strings.HasPrefix(text, "RunPod status: ready") {
		t.Errorf("%s", text)
	}
}
