package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/manual"
)

// promptName is what a user types in a client, such as /mcp__sallyport__guide.
const promptName = "guide"

// addPrompt registers the manual as a prompt, for users who want a model to read
// it before a task. A model sees nothing of it until a user asks for it.
func addPrompt(sdk *mcp.Server) {
	sdk.AddPrompt(&mcp.Prompt{
		Name:        promptName,
		Title:       "How to use run_python",
		Description: "Teaches the model to find and call tools from Python, keep data and functions, and read long output.",
		Arguments:   []*mcp.PromptArgument{{Name: "task", Title: "Task", Description: "What to do then."}},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{
			Role: "user", Content: &mcp.TextContent{Text: manual.Prompt(req.Params.Arguments["task"])},
		}}}, nil
	})
}
