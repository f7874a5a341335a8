package mcpserver

import (
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
)

const (
	// maxLinks bounds the links of an answer: some clients show them to the model.
	maxLinks = 10
	// firstWithLinks is the first protocol revision with links in results.
	firstWithLinks = "2025-06-18"
)

// link is a block of content that names a file that is kept. Its members are in the
// SDK's order.
type link struct {
	Type     string `json:"type"`
	MIMEType string `json:"mimeType,omitempty"`
	URI      string `json:"uri"`
	Name     string `json:"name"`
	Size     int64  `json:"size"`
}

// sdk returns the link as the SDK has it.
func (l link) sdk() *mcp.ResourceLink {
	return &mcp.ResourceLink{URI: l.URI, Name: l.Name, MIMEType: l.MIMEType, Size: &l.Size}
}

// links returns the links of a result, if the client's protocol revision knows them: to
// the files that are kept, but for the pictures that the answer shows.
func (c *conn) links(r *broker.Result) (list []link) {
	c.mu.Lock()
	known := c.protocol == "" || c.protocol >= firstWithLinks // empty: a later, stateless one
	c.mu.Unlock()
	for _, a := range r.Artifacts {
		shown := slices.ContainsFunc(r.Images, func(i broker.Image) bool { return i.Path == a.Path })
		if known && a.URI != "" && !shown && len(list) < maxLinks {
			list = append(list, link{Type: "resource_link", MIMEType: a.MIMEType, URI: a.URI, Name: a.Path, Size: a.Size})
		}
	}
	return list
}
