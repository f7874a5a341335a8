package pins

import (
	"encoding/json"
	"strings"
)

// Kind is what an item is.
type Kind string

// The kinds of items.
const (
	Tool     Kind = "tool"
	Prompt   Kind = "prompt"
	Resource Kind = "resource"
	Template Kind = "template" // of resources
	// Instructions are one item without a name: what a server says of itself.
	Instructions Kind = "instructions"
)

// Key is the member by which a server names items of this kind.
func (k Kind) Key() string {
	switch k {
	case Resource:
		return "uri"
	case Template:
		return "uriTemplate"
	}
	return "name"
}

// Label names an item for people. A tool has its own name.
func (k Kind) Label(name string) string {
	switch {
	case k == Tool:
		return name
	case name == "":
		return string(k)
	}
	return string(k) + " " + name
}

// Item is what a server says of one thing that it offers.
type Item struct {
	Name, Title, Description  string
	InputSchema, OutputSchema json.RawMessage
	Rest                      json.RawMessage // an object of the other members, or empty
}

// Listed are all items of a kind that a server has.
type Listed struct {
	Kind  Kind
	Items []Item
}

// ItemOf reads an item as its server sent it; ok says that it has a name. When
// a resource changed last and its size are not part of it.
func ItemOf(kind Kind, raw json.RawMessage) (it Item, ok bool) {
	members := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &members) != nil {
		return it, false
	}
	for key, text := range map[string]*string{kind.Key(): &it.Name, "title": &it.Title, "description": &it.Description} {
		var s *string
		if json.Unmarshal(members[key], &s) == nil && s != nil { // others are kept with the rest
			*text = *s
			delete(members, key)
		}
	}
	if kind == Tool {
		for key, schema := range map[string]*json.RawMessage{"inputSchema": &it.InputSchema, "outputSchema": &it.OutputSchema} {
			if value := members[key]; len(value) > 0 && value[0] == '{' {
				*schema = value
				delete(members, key)
			}
		}
	}
	if kind == Resource {
		dropState(members)
	}
	if len(members) > 0 {
		it.Rest, _ = json.Marshal(members) // what was read
	}
	return it, it.Name != ""
}

// dropState removes what changes with a resource's content.
func dropState(members map[string]json.RawMessage) {
	if only(members["size"], "0123456789") {
		delete(members, "size")
	}
	annotations := map[string]json.RawMessage{}
	if json.Unmarshal(members["annotations"], &annotations) != nil || !only(annotations["lastModified"], `"0123456789-:.+TZtz`) {
		return
	}
	delete(annotations, "lastModified")
	delete(members, "annotations")
	if len(annotations) > 0 {
		members["annotations"], _ = json.Marshal(annotations)
	}
}

// only says that there is a text, of these characters.
func only(text json.RawMessage, of string) bool {
	return len(text) > 0 && strings.Trim(string(text), of) == ""
}
