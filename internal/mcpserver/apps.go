package mcpserver

import (
	"context"
	_ "embed"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// MCP Apps (SEP-1865): a client that declares appsExtension shows the page of appURI
// next to a result, in a frame that may request nothing. The page takes the result from
// the client, reads the HTML that it links to through the client, and shows it.
const (
	appsExtension = "io.modelcontextprotocol/ui"
	appURI        = "ui://sallyport/result"
	appType       = "text/html;profile=mcp-app"
)

// appPage is the page. All that it needs is in it.
//
//go:embed app.html
var appPage string

// appMeta is the metadata of the page: no requests, no frames of others, no permissions.
var appMeta = mcp.Meta{"ui": map[string]any{
	"csp":           map[string]any{"connectDomains": []string{}, "resourceDomains": []string{}, "frameDomains": []string{}},
	"prefersBorder": false,
}}

// takesApps reports whether a client declares that it shows pages of appType.
func takesApps(extensions map[string]any) bool {
	value, ok := extensions[appsExtension]
	if !ok {
		return false
	}
	settings, _ := value.(map[string]any)
	types, said := settings["mimeTypes"].([]any)
	return !said || slices.Contains(types, any(appType))
}

// appsIn is takesApps for capabilities in JSON.
func appsIn(capabilities []byte) bool {
	var c struct {
		Extensions map[string]any `json:"extensions"`
	}
	return json.Unmarshal(capabilities, &c) == nil && takesApps(c.Extensions)
}

// appsOf is takesApps for the parameters of initialize.
func appsOf(params json.RawMessage) bool {
	var p struct {
		Capabilities json.RawMessage `json:"capabilities"`
	}
	return json.Unmarshal(params, &p) == nil && appsIn(p.Capabilities)
}

// appsInKey is takesApps for a key: see modernKey.
func appsInKey(key string) bool {
	parts := strings.Split(key, "\n")
	return len(parts) == 3 && appsIn([]byte(parts[2]))
}

// showsPages reports whether the client shows pages.
func (c *conn) showsPages() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apps
}

// addApp adds the page, which clients that show pages see.
func addApp(sdk *mcp.Server) {
	sdk.AddResource(&mcp.Resource{
		URI: appURI, Name: "result", Title: "Charts and tables of results", MIMEType: appType, Size: int64(len(appPage)), Meta: appMeta,
	}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: appURI, MIMEType: appType, Text: appPage, Meta: appMeta}}}, nil
	})
	sdk.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			result, err := next(ctx, method, req)
			if err != nil {
				return result, err
			}
			switch list := result.(type) {
			case *mcp.ListToolsResult:
				r, ok := req.(*mcp.ListToolsRequest)
				if !ok || !declaresApps(r.ClientCapabilities()) {
					break
				}
				for i, t := range list.Tools {
					if t.Name == toolName {
						copied := *t
						copied.Meta = mcp.Meta{"ui": map[string]any{"resourceUri": appURI}}
						for key, value := range t.Meta {
							copied.Meta[key] = value
						}
						list.Tools[i] = &copied
					}
				}
			case *mcp.ListResourcesResult:
				if r, ok := req.(*mcp.ListResourcesRequest); !ok || !declaresApps(r.ClientCapabilities()) {
					list.Resources = slices.DeleteFunc(list.Resources, func(r *mcp.Resource) bool { return r.URI == appURI })
				}
			}
			return result, nil
		}
	})
}

func declaresApps(c *mcp.ClientCapabilities) bool { return c != nil && takesApps(c.Extensions) }
