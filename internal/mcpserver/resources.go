package mcpserver

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/manual"
)

// ErrNoResource is the error of a source for a resource that it does not have.
var ErrNoResource = errors.New("no such resource")

// Resources is a source of resources besides the manual, for example the files
// that sessions have left. It must be safe for concurrent use.
type Resources interface {
	// List returns the current resources in a stable order. At most maxResources of
	// all sources together are shown.
	List(context.Context) ([]Resource, error)
	// Read returns the content of one resource, or an error that wraps
	// ErrNoResource if uri is not one of this source's. It is asked only for URIs
	// that begin with sallyport://.
	Read(ctx context.Context, uri string) (*Content, error)
}

const maxResources = 1000

// Resource is something that a client can read.
type Resource struct {
	URI, Name, Title, Description, MIMEType string
	Size                                    int64 // in bytes; 0: unknown
}

// Content is what a client has read: Blob if it is not nil, else Text.
type Content struct {
	MIMEType, Text string
	Blob           []byte
}

// The manual is available under our own URI and under the one that clients of
// the first code-execution bridge know.
var capabilityURIs = []string{
	"resource://sallyport/capabilities",
	"resource://mcp-server-code-execution-mode/capabilities",
}

func (s *Server) addResources(sdk *mcp.Server, c *conn) {
	for _, uri := range capabilityURIs {
		text := manual.Resource(toolDescription, uri)
		sdk.AddResource(&mcp.Resource{
			URI:      uri,
			Name:     "code-execution-capabilities",
			Title:    "Code Execution Sandbox Helpers",
			MIMEType: "text/markdown",
			Size:     int64(len(text)),
		}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
				URI: uri, MIMEType: "text/markdown", Text: text,
			}}}, nil
		})
	}
	sources := append([]Resources{writtenBy{c}}, s.config.Resources...)
	// A template, because the SDK completes only what its own handlers return.
	sdk.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: resourceScheme + "{+path}", Name: "sandbox-files",
		Title: "Files and output of sandboxes", Description: "What answers name: whole outputs, and files that runs have left.",
	}, func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return readResource(ctx, sources, req.Params.URI)
	})
	sdk.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, req)
			list, ok := result.(*mcp.ListResourcesResult)
			// Our resources follow the SDK's own, on its last page.
			if err != nil || !ok || list.NextCursor != "" {
				return result, err
			}
			list.TTLMs = 0 // it may change at any time
			return list, listResources(ctx, sources, list)
		}
	})
}

// resourceScheme begins the URI of every resource of a source.
const resourceScheme = "sallyport://"

// readResource reads a resource from the first source that has it.
func readResource(ctx context.Context, sources []Resources, uri string) (*mcp.ReadResourceResult, error) {
	for _, source := range sources {
		content, err := source.Read(ctx, uri)
		if errors.Is(err, ErrNoResource) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("resource %s: %w", uri, err)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
			URI: uri, MIMEType: content.MIMEType, Text: content.Text, Blob: content.Blob,
		}}, Cacheable: mcp.Cacheable{CacheScope: "private"}}, nil
	}
	return nil, mcp.ResourceNotFoundError(uri)
}

func listResources(ctx context.Context, sources []Resources, list *mcp.ListResourcesResult) error {
	for _, source := range sources {
		resources, err := source.List(ctx)
		if err != nil {
			return fmt.Errorf("resources: %w", err)
		}
		for _, r := range resources {
			if len(list.Resources) == maxResources {
				return nil
			}
			list.Resources = append(list.Resources, &mcp.Resource{
				URI: r.URI, Name: r.Name, Title: r.Title, Description: r.Description, MIMEType: r.MIMEType, Size: r.Size,
			})
		}
	}
	return nil
}
