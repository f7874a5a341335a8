package connect

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// A moved is the copy of a client's server in the user's folder. Its member
// "source" names the clients that it comes from: equal definitions share one
// copy, which stays until the last of them is given back.
type moved struct {
	server string
	client string
	origin edit.Object
	entry  json.RawMessage // the definition, without origins
}

// origins is where a copy names its clients.
func origins(server string, client ...string) edit.Place {
	return edit.At(append([]string{"mcpServers", server, "source"}, client...)...)
}

// add returns the content of the copy with this client among its origins. A
// definition that no client was moved to is the user's own, and stays as it is.
func (m moved) add(now []byte, exists bool) ([]byte, error) {
	if !exists {
		text, err := definitions.File(m.server, m.entry)
		if err != nil {
			return nil, err
		}
		return edit.Set(edit.JSON, text, origins(m.server, m.client), m.origin)
	}
	other, err := m.differs(now)
	if err != nil {
		return nil, err
	}
	if len(other) > 0 {
		return nil, ErrChanged
	}
	if had, err := edit.Get(edit.JSONC, now, origins(m.server)); err != nil || !isObject(had) {
		return now, err
	}
	return edit.Set(edit.JSONC, now, origins(m.server, m.client), m.origin)
}

// differs returns the members in which the content defines the server otherwise.
func (m moved) differs(content []byte) ([]string, error) {
	have, err := edit.Get(edit.JSONC, content, edit.At("mcpServers", m.server))
	if err != nil {
		return nil, err
	}
	want, err := edit.Get(edit.JSON, m.entry, edit.At())
	if err != nil {
		return nil, err
	}
	there, _ := have.(map[string]any)
	ours, _ := want.(map[string]any)
	var out []string
	for key := range ours {
		if key != "source" && !reflect.DeepEqual(ours[key], there[key]) {
			out = append(out, key)
		}
	}
	for key := range there {
		if _, both := ours[key]; !both && key != "source" {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out, nil
}

// takeOut returns the content of a copy without one of its origins, or that the
// copy goes with the last of them. kept is what was written.
func takeOut(now, kept []byte, server, client string) (rest []byte, gone bool, err error) {
	if rest, err = edit.Remove(edit.JSONC, now, origins(server, client)); err != nil {
		return nil, false, err
	}
	left, err := edit.Get(edit.JSONC, rest, origins(server))
	if others, _ := left.(map[string]any); err != nil || len(others) > 0 {
		return rest, false, err
	}
	var bare [2]any
	for i, text := range [][]byte{now, kept} {
		if text, err = edit.Remove(edit.JSONC, text, origins(server)); err != nil {
			return nil, false, err
		}
		if bare[i], err = edit.Get(edit.JSONC, text, edit.At()); err != nil {
			return nil, false, err
		}
	}
	if !reflect.DeepEqual(bare[0], bare[1]) {
		return nil, false, ErrChanged
	}
	return nil, true, nil
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}
