package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
)

// pages notes whether requests are of clients that show pages.
type pages struct {
	stubExecutor
	said []bool
}

func (p *pages) Submit(req broker.Request) func(context.Context) *broker.Result {
	p.said = append(p.said, req.HTML)
	return func(context.Context) *broker.Result { return &broker.Result{Status: broker.Success} }
}

// TestApps: a client that shows pages of our kind is given one, and its code is asked
// for HTML; others see nothing of it.
func TestApps(t *testing.T) {
	for _, version := range revisions {
		for _, tt := range []struct {
			name       string
			extensions map[string]any
			want       bool
		}{
			{"none", nil, false},
			{"another", map[string]any{"io.example/ui": map[string]any{}}, false},
			{"any types", map[string]any{appsExtension: map[string]any{}}, true},
			{"our type", map[string]any{appsExtension: map[string]any{"mimeTypes": []string{"text/html", appType}}}, true},
			{"other types", map[string]any{appsExtension: map[string]any{"mimeTypes": []string{"text/html+skybridge"}}}, false},
		} {
			e := &pages{}
			s := connect(t, Config{Executor: e}, version, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{Extensions: tt.extensions}})
			tools, err := s.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			ui, got := tools.Tools[0].Meta["ui"].(map[string]any)
			if got != tt.want || got && ui["resourceUri"] != appURI || tools.Tools[0].Meta["anthropic/alwaysLoad"] != true {
				t.Errorf("%s, %s: the tool has %v, want a page: %v", version, tt.name, tools.Tools[0].Meta, tt.want)
			}
			list, err := s.ListResources(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if listed := slices.ContainsFunc(list.Resources, func(r *mcp.Resource) bool { return r.URI == appURI && r.MIMEType == appType }); listed != tt.want {
				t.Errorf("%s, %s: the page is listed: %v, want %v", version, tt.name, listed, tt.want)
			}
			if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: toolName, Arguments: map[string]any{"code": "1"}}); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(e.said) != fmt.Sprint([]bool{tt.want}) {
				t.Errorf("%s, %s: the code was asked for HTML: %v, want %v", version, tt.name, e.said, tt.want)
			}
		}
	}
	s := connect(t, Config{}, legacyLatest, nil)
	read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: appURI})
	if err != nil {
		t.Fatal(err)
	}
	page := read.Contents[0]
	if page.MIMEType != appType || !strings.Contains(page.Text, partKey) || fmt.Sprint(page.Meta["ui"]) != "map[csp:map[connectDomains:[] frameDomains:[] resourceDomains:[]] prefersBorder:false]" {
		t.Errorf("%s with %v: %.100s", page.MIMEType, page.Meta, page.Text)
	}
	if strings.Contains(page.Text, "http:") || strings.Contains(page.Text, "https:") || strings.Contains(page.Text, "src=") {
		t.Error("the page refers to others")
	}
}
