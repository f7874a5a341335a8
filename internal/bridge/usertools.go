package bridge

import (
	"encoding/json"
	"errors"

	"github.com/sallyport/sallyport/internal/savedtools"
	"github.com/sallyport/sallyport/internal/store/keyed"
	"github.com/sallyport/sallyport/internal/wire"
)

// SavedServer is the name under which the saved tools are documented, as if
// they were a server. A configured server of that name takes precedence.
const SavedServer = "user_tools"

// SavedTools keeps functions for all sessions of an owner, as source text.
// Errors wrap those of packages savedtools and keyed, or are the file system's.
// Methods are safe for concurrent use. [savedtools.Store] implements it.
type SavedTools interface {
	// Save keeps a new version and returns its number.
	Save(name string, v savedtools.Version) (version int, err error)
	// Get returns keyed.ErrMissing for an unknown name.
	Get(name string) (savedtools.Tool, error)
	// Names is sorted.
	Names() ([]string, error)
	// List is sorted by name. It also names those that cannot be read.
	List() (tools []savedtools.Tool, broken []string, err error)
}

// toolCall answers the methods of saved tools.
func (x *Execution) toolCall(call wire.Call) (json.RawMessage, error) {
	kept := x.bridge.config.Stores.SavedTools(x.principal.Owner)
	if kept == nil {
		return nil, &wire.CallError{Kind: wire.KindDenied, Message: "saved tools are switched off here (setting savedTools.enabled)"}
	}
	var p wire.SavedTool
	if err := json.Unmarshal(call.Params, &p); err != nil {
		return nil, &wire.CallError{Kind: wire.KindInvalid, Message: "this is not a saved tool"}
	}
	result, err := toolAnswer(kept, call.Method, &p)
	if err != nil {
		return nil, keepError(err)
	}
	return result, nil
}

func toolAnswer(kept SavedTools, method string, p *wire.SavedTool) (json.RawMessage, error) {
	switch method {
	case wire.MethodToolSave:
		version, err := kept.Save(p.Name, savedtools.Version{
			Python: p.Python, Signature: p.Signature, Doc: p.Doc, Async: p.Async,
			Servers: p.Servers, Schema: p.Schema, Source: p.Source,
		})
		if err != nil {
			return nil, err
		}
		return json.Marshal(version)
	case wire.MethodToolLoad:
		t, err := kept.Get(p.Name)
		if errors.Is(err, keyed.ErrMissing) {
			return json.RawMessage("null"), nil
		}
		if err != nil {
			return nil, err
		}
		v := t.Current()
		return json.Marshal(struct {
			Name    string   `json:"name"`
			Version int      `json:"version"`
			Servers []string `json:"servers"`
			Source  string   `json:"source"`
		}{t.Name, v.Version, v.Servers, v.Source})
	default:
		names, err := kept.Names()
		if err != nil {
			return nil, err
		}
		return json.Marshal(names)
	}
}

// describeSaved returns how a saved tool is called, and its description.
func describeSaved(name string, v *savedtools.Version) string {
	text := "from user_tools import " + name + "; "
	if v.Async {
		text += "await "
	}
	text += name + v.Signature
	for i, alias := range v.Servers {
		if i == 0 {
			text += " (needs the servers"
		}
		text += " mcp_" + alias
		if i == len(v.Servers)-1 {
			text += ")"
		}
	}
	if v.Doc != "" {
		text += ": " + v.Doc
	}
	return text
}
