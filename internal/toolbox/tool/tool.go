// Package tool has the one type for a tool of an MCP server. Upstream reads it,
// the catalog stores it, pins compare it, the bridge turns it into what code may
// read, and the sandbox receives it. The names by which code calls servers and
// tools are here, too.
package tool

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sallyport/sallyport/internal/jsonscan"
)

// Tool is one tool. Its raw members are the server's own bytes, are shared and
// must not be changed.
type Tool struct {
	Name string `json:"name"`
	// Alias is an identifier. Tools whose names are alike have the same; see Calls.
	Alias        string          `json:"alias"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`  // an object
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"` // an object, or nil
	Annotations
	// Signature and Renamed are what a sandbox shows and binds arguments by, and
	// Unwrap is the property of a structured result whose value a call returns.
	// Only the definition for a sandbox has them.
	Signature string            `json:"signature,omitempty"`
	Renamed   map[string]string `json:"renamed,omitempty"`
	Unwrap    string            `json:"unwrap,omitempty"`
	// Raw is the whole description, as MCP has it. It is neither stored nor
	// sent: it has members that nothing here looks at.
	Raw json.RawMessage `json:"-"`
}

// Annotations are what a server says that a tool does. The zero value is a tool
// without annotations, which counts as the specification has it: it writes,
// destroys, does more when it is called again, and reaches the world outside.
type Annotations struct {
	ReadOnly       bool `json:"readOnly,omitempty"`
	NonDestructive bool `json:"nonDestructive,omitempty"`
	Idempotent     bool `json:"idempotent,omitempty"`
	ClosedWorld    bool `json:"closedWorld,omitempty"`
}

// Destructive reports whether the tool may destroy something.
func (a Annotations) Destructive() bool { return !a.ReadOnly && !a.NonDestructive }

// Both returns what two descriptions of a tool agree on.
func (a Annotations) Both(b Annotations) Annotations {
	return Annotations{a.ReadOnly && b.ReadOnly, a.NonDestructive && b.NonDestructive, a.Idempotent && b.Idempotent, a.ClosedWorld && b.ClosedWorld}
}

// maxName bounds the bytes of a tool's name.
const maxName = 512

// AnyObject is the input schema of a tool that has none.
var AnyObject = json.RawMessage(`{"type":"object"}`)

// Parse cuts a tool's description into its members without copying them. It
// reports false for one without a usable name. A member of an unexpected type is
// ignored.
func Parse(raw json.RawMessage) (Tool, bool) {
	t := Tool{Raw: raw, InputSchema: AnyObject}
	var annotations json.RawMessage
	err := jsonscan.Members(raw, func(key string, value json.RawMessage) bool {
		object := jsonscan.Kind(value) == '{'
		switch {
		case key == "name":
			_ = json.Unmarshal(value, &t.Name) // checked below
		case key == "title":
			_ = json.Unmarshal(value, &t.Title)
		case key == "description":
			_ = json.Unmarshal(value, &t.Description)
		case key == "inputSchema" && object:
			t.InputSchema = value
		case key == "outputSchema" && object:
			t.OutputSchema = value
		case key == "annotations" && object:
			annotations = value
		}
		return true
	})
	_ = jsonscan.Members(annotations, func(key string, value json.RawMessage) bool {
		switch {
		case key == "title" && t.Title == "":
			_ = json.Unmarshal(value, &t.Title)
		case key == "readOnlyHint":
			t.ReadOnly = jsonscan.Kind(value) == 't'
		case key == "destructiveHint":
			t.NonDestructive = jsonscan.Kind(value) == 'f'
		case key == "idempotentHint":
			t.Idempotent = jsonscan.Kind(value) == 't'
		case key == "openWorldHint":
			t.ClosedWorld = jsonscan.Kind(value) == 'f'
		}
		return true
	})
	t.Alias = Alias(t.Name)
	return t, err == nil && t.Name != "" && len(t.Name) <= maxName
}

// maxKept bounds the description of a tool that Reduce has cut.
const maxKept = 4 << 10

// Reduce returns a tool's description without its schemas, for one of which too much
// must be left out to be of use. Its text ends with the reason and a digest: a change
// of what is left out is a change of the tool.
func Reduce(raw json.RawMessage, why string) json.RawMessage {
	t, _ := Parse(raw)
	sum := sha256.Sum256(raw)
	if len(t.Description) > maxKept {
		t.Description = strings.ToValidUTF8(t.Description[:maxKept], "") + "…"
	}
	type hints struct {
		ReadOnly       bool  `json:"readOnlyHint,omitempty"`
		NonDestructive *bool `json:"destructiveHint,omitempty"`
		Idempotent     bool  `json:"idempotentHint,omitempty"`
		ClosedWorld    *bool `json:"openWorldHint,omitempty"`
	}
	h := hints{ReadOnly: t.ReadOnly, Idempotent: t.Idempotent}
	if t.NonDestructive {
		h.NonDestructive = new(bool)
	}
	if t.ClosedWorld {
		h.ClosedWorld = new(bool)
	}
	about := strings.TrimSpace(fmt.Sprintf("%s\n\n(%s, so its schema is left out: SHA-256 %x)", t.Description, why, sum[:8]))
	out, err := json.Marshal(map[string]any{"name": t.Name, "description": about, "inputSchema": AnyObject, "annotations": h})
	if err != nil { // cannot happen: strings and booleans
		return json.RawMessage("{}")
	}
	return out
}

// Summary returns the description in one line.
func (t *Tool) Summary() string {
	if s := FirstSentence(t.Description); s != "" {
		return s
	}
	return FirstSentence(t.Title)
}
