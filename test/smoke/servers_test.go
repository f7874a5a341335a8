//go:build linux

package smoke

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// roleArgument makes the test binary the MCP server that the next argument names.
const roleArgument = "mcp-server"

func serveRole(role string) {
	servers := map[string]func() *mcp.Server{"notes": notesServer, "search-docs": searchServer}
	make, ok := servers[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "there is no server %q\n", role)
		os.Exit(2)
	}
	if err := make().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, role, "server:", err)
		os.Exit(1)
	}
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// meeting lets callers go once enough of them are there at the same time.
type meeting struct {
	mu      sync.Mutex
	present int
	full    chan struct{}
}

func (m *meeting) join(ctx context.Context, size int) error {
	m.mu.Lock()
	if m.full == nil {
		m.full = make(chan struct{})
	}
	full := m.full
	if m.present++; m.present == size {
		close(m.full)
		m.present, m.full = 0, nil
	}
	m.mu.Unlock()
	select {
	case <-full:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return errors.New("the others did not come: calls do not run in parallel")
	}
}

// notesServer keeps notes in its memory, so that a second process of it has
// others.
func notesServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, &mcp.ServerOptions{Instructions: "Keeps short notes."})
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	var mu sync.Mutex
	notes := map[string]string{}

	type name struct {
		Name string `json:"name" jsonschema:"the name of the note"`
	}
	type note struct {
		Name string `json:"name" jsonschema:"the name of the note"`
		Text string `json:"text" jsonschema:"what it says"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "put", Description: "Writes a note."}, func(_ context.Context, _ *mcp.CallToolRequest, n note) (*mcp.CallToolResult, any, error) {
		mu.Lock()
		defer mu.Unlock()
		notes[n.Name] = n.Text
		return text("wrote " + n.Name), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "get", Description: "Reads a note.", Annotations: reads}, func(_ context.Context, _ *mcp.CallToolRequest, n name) (*mcp.CallToolResult, any, error) {
		mu.Lock()
		defer mu.Unlock()
		found, ok := notes[n.Name]
		if !ok {
			return nil, nil, fmt.Errorf("there is no note %q", n.Name)
		}
		return text(found), nil, nil
	})
	type list struct {
		Names []string `json:"names"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "list-things", Description: "Lists the names of all notes.", Annotations: reads}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, list, error) {
		mu.Lock()
		defer mu.Unlock()
		return nil, list{append([]string{}, slices.Sorted(maps.Keys(notes))...)}, nil
	})
	type size struct {
		Size int `json:"size" jsonschema:"how many callers meet"`
	}
	var m meeting
	mcp.AddTool(s, &mcp.Tool{Name: "meet", Description: "Waits until so many callers are here.", Annotations: reads}, func(ctx context.Context, _ *mcp.CallToolRequest, n size) (*mcp.CallToolResult, any, error) {
		if err := m.join(ctx, n.Size); err != nil {
			return nil, nil, err
		}
		return text("met"), nil, nil
	})
	s.AddResource(&mcp.Resource{URI: "notes://readme", Name: "readme", MIMEType: "text/plain"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "notes://readme", MIMEType: "text/plain", Text: "Notes are short."}}}, nil
	})
	return s
}

// searchServer has a name that is not an identifier.
func searchServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "search-docs", Version: "1"}, nil)
	type query struct {
		Query string `json:"query" jsonschema:"what to look for"`
	}
	type hit struct {
		Title string  `json:"title"`
		Score float64 `json:"score"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "find-pages", Description: "Finds pages of the handbook that mention a subject.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, func(_ context.Context, _ *mcp.CallToolRequest, q query) (*mcp.CallToolResult, hit, error) {
		return nil, hit{"About " + q.Query, 0.5}, nil
	})
	return s
}
