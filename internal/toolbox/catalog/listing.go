package catalog

import (
	"strings"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// Bounds of what is kept for one server. The rest is dropped and counted.
const (
	maxTools     = 5000
	maxBytes     = 4 << 20
	maxToolBytes = 256 << 10 // of one tool; larger schemas are left out
	maxNames     = 2000      // of resources, and of prompts
)

// Listing is what a server offers.
type Listing struct {
	// Name and Version are the server's own.
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// About is the server's description of itself, in a line.
	About     string      `json:"about,omitempty"`
	Tools     []tool.Tool `json:"tools"`
	Resources []Item      `json:"resources,omitempty"`
	Prompts   []Item      `json:"prompts,omitempty"`
	LeftOut   int         `json:"leftOut,omitempty"` // beyond the bounds
}

// Item is a resource or a prompt by its names.
type Item struct {
	Name        string `json:"name"`
	URI         string `json:"uri,omitempty"`
	Description string `json:"description,omitempty"`
}

// bound drops what exceeds the bounds.
func (l *Listing) bound() {
	used, kept := 0, make([]tool.Tool, 0, min(len(l.Tools), maxTools))
	for i, t := range l.Tools {
		t.Raw = nil
		t.Alias = tool.Alias(t.Name) // an earlier release made others
		if len(t.InputSchema)+len(t.OutputSchema)+len(t.Description) > maxToolBytes {
			t.InputSchema, t.OutputSchema = nil, nil
			if len(t.Description) > maxToolBytes/2 {
				t.Description = strings.ToValidUTF8(t.Description[:maxToolBytes/2], "")
			}
		}
		size := len(t.Name) + len(t.Alias) + len(t.Title) + len(t.Description) + len(t.InputSchema) + len(t.OutputSchema)
		if used+size > maxBytes || len(kept) == maxTools {
			l.LeftOut += len(l.Tools) - i
			break
		}
		used += size
		kept = append(kept, t)
	}
	l.Tools = kept
	l.Resources, used = boundItems(l.Resources, used, &l.LeftOut)
	l.Prompts, _ = boundItems(l.Prompts, used, &l.LeftOut)
	l.Name, l.Version, l.About = clip(l.Name, 200), clip(l.Version, 100), clip(tool.FirstSentence(l.About), 200)
}

func boundItems(items []Item, used int, leftOut *int) ([]Item, int) {
	var kept []Item
	for i, it := range items {
		it.Name, it.URI, it.Description = clip(it.Name, 500), clip(it.URI, 2000), tool.FirstSentence(it.Description)
		size := len(it.Name) + len(it.URI) + len(it.Description)
		if used+size > maxBytes || len(kept) == maxNames {
			*leftOut += len(items) - i
			break
		}
		used += size
		kept = append(kept, it)
	}
	return kept, used
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
