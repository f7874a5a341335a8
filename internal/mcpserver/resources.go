package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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
	// Open opens one resource, or returns an error that wraps ErrNoResource if uri is
	// not one of this source's. It is asked only for URIs that begin with
	// sallyport://, without what follows a question mark.
	Open(ctx context.Context, uri string) (*Content, error)
}

const maxResources = 1000

// Resource is something that a client can read.
type Resource struct {
	URI, Name, Title, Description, MIMEType string
	Size                                    int64 // in bytes; 0: unknown
}

// Content is an open resource. It is read in parts, and closed.
type Content struct {
	MIMEType string
	Size     int64
	io.ReadSeekCloser
}

// Text returns the content of a resource of text.
func Text(mimeType, text string) *Content {
	return &Content{MIMEType: mimeType, Size: int64(len(text)), ReadSeekCloser: closed{strings.NewReader(text)}}
}

type closed struct{ *strings.Reader }

func (closed) Close() error { return nil }

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
		URITemplate: resourceScheme + "{+path}{?offset,length}", Name: "sandbox-files",
		Title: "Files and output of sandboxes", Description: fmt.Sprintf("What answers name: whole outputs, and files that code has left. One that is larger than %d MB comes in parts: offset and length, in bytes, choose one, and the metadata of each names the next.", maxPart>>20),
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
