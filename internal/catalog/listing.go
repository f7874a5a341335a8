package catalog

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"sallyport/internal/hidden"
)

// Bounds of what is kept of one server. What goes beyond is left out, and
// counted.
const (
	maxTools     = 5000
	maxBytes     = 4 << 20
	maxToolBytes = 256 << 10 // of one tool; larger schemas are left out
	maxNames     = 2000      // of resources, and of prompts
)

// Listing is what a server says that it offers.
type Listing struct {
	// Name and Version are the server's own.
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// About is what it says of itself, in a line.
	About     string `json:"about,omitempty"`
	Tools     []Tool `json:"tools"`
	Resources []Item `json:"resources,omitempty"`
	Prompts   []Item `json:"prompts,omitempty"`
	LeftOut   int    `json:"leftOut,omitempty"` // beyond the bounds
}

// Tool is one tool. The raw members are the server's own bytes.
type Tool struct {
	Name         string          `json:"name"`
	Alias        string          `json:"alias"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	ReadOnly     bool            `json:"readOnly,omitempty"` // as the server says
}

// Item is a resource or a prompt by its names.
type Item struct {
	Name        string `json:"name"`
	URI         string `json:"uri,omitempty"`
	Description string `json:"description,omitempty"`
}

// Summary is the description in one line.
func (t *Tool) Summary() string {
	if s := Line(t.Description); s != "" {
		return s
	}
	return Line(t.Title)
}

// Line is the first sentence of a text, without what is not seen, and cut where
// it is long.
func Line(text string) string {
	const most = 80
	const read = 4 << 10
	if len(text) > read {
		text = strings.ToValidUTF8(text[:read], "")
	}
	line := ""
	for part := range strings.Lines(text) {
		part = strings.TrimLeft(strings.Join(strings.Fields(hidden.Strip(part)), " "), "#*- ")
		if part != "" {
			line = part
			break
		}
	}
	if end := sentence(line); end > 0 {
		line = line[:end]
	} else if !strings.HasSuffix(line, "..") {
		line = strings.TrimSuffix(line, ".")
	}
	if utf8.RuneCountInString(line) <= most {
		return line
	}
	cut := string([]rune(line)[:most])
	if at := strings.LastIndexByte(cut, ' '); at > most/2 {
		cut = cut[:at]
	}
	return strings.TrimRight(cut, " ,;:") + "…"
}

// sentence is where the first sentence ends, or 0. A period ends one before
// a capital letter only, so that "e.g. this" goes on.
func sentence(line string) int {
	for i := 0; i+2 < len(line); i++ {
		if line[i] != '.' || line[i+1] != ' ' || i < 8 {
			continue
		}
		next, _ := utf8.DecodeRuneInString(line[i+2:])
		if unicode.IsUpper(next) || next == '*' || next == '[' {
			return i
		}
	}
	return 0
}

// bound leaves out what is too much.
func (l *Listing) bound() {
	used, kept := 0, make([]Tool, 0, min(len(l.Tools), maxTools))
	for i, t := range l.Tools {
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
	l.Name, l.Version, l.About = clip(l.Name, 200), clip(l.Version, 100), clip(Line(l.About), 200)
}

func boundItems(items []Item, used int, leftOut *int) ([]Item, int) {
	var kept []Item
	for i, it := range items {
		it.Name, it.URI, it.Description = clip(it.Name, 500), clip(it.URI, 2000), Line(it.Description)
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
