package pins

import (
	"encoding/json"
	"strings"

	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// Kind is a kind of item that a server offers.
type Kind string

// The kinds of items.
const (
	Tool     Kind = "tool"
	Prompt   Kind = "prompt"
	Resource Kind = "resource"
	Template Kind = "template" // of resources
	// Instructions are one item without a name: the server's text about itself.
	Instructions Kind = "instructions"
)

// Key returns the member by which a server names items of this kind.
func (k Kind) Key() string {
	switch k {
	case Resource:
		return "uri"
	case Template:
		return "uriTemplate"
	}
	return "name"
}

// Label names an item for people. The label of a tool is its name.
func (k Kind) Label(name string) string {
	switch {
	case k == Tool:
		return name
	case name == "":
		return string(k)
	}
	return string(k) + " " + name
}

// Listed is all items of a kind that a server has.
type Listed struct {
	kind   Kind
	forms  map[string]Form // by name
	hidden []string        // the names of items with invisible characters
}

// None returns the list of a server without items of a kind.
func None(kind Kind) Listed { return Listed{kind: kind, forms: map[string]Form{}} }

// Tools lists a server's tools.
func Tools(tools []tool.Tool) Listed {
	l := None(Tool)
	for i := range tools {
		t := &tools[i]
		_, members := membersOf(Tool, t.Raw)
		l.add(t.Name, &Form{Title: t.Title, Description: t.Description, Input: t.InputSchema, Output: t.OutputSchema, Rest: members.Rest})
	}
	return l
}

// About lists the one item for what a server says about itself.
func About(title, instructions string) Listed {
	l := None(Instructions)
	l.add("", &Form{Title: title, Description: instructions})
	return l
}

// List reads items of a kind from the server's own array of them, which must be
// valid JSON. It ignores items without a name.
func List(kind Kind, raw json.RawMessage) Listed {
	l := None(kind)
	_ = jsonscan.Elements(raw, func(value json.RawMessage) bool {
		if name, f := membersOf(kind, value); name != "" {
			l.add(name, &f)
		}
		return true
	})
	return l
}

func (l *Listed) add(name string, f *Form) {
	canonical, hidden := f.canonical()
	l.forms[name] = canonical
	if hidden || len(invisible.In(name)) > 0 {
		l.hidden = append(l.hidden, name)
	}
}

// NameOf returns the name of an item as its server sent it, or "".
func NameOf(kind Kind, raw json.RawMessage) string {
	name, _ := membersOf(kind, raw)
	return name
}

// membersOf reads an item as its server sent it. The size of a resource and the
// time of its last change are not part of its form.
func membersOf(kind Kind, raw json.RawMessage) (name string, f Form) {
	members := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &members) != nil {
		return "", f
	}
	for key, text := range map[string]*string{kind.Key(): &name, "title": &f.Title, "description": &f.Description} {
		var s *string
		if json.Unmarshal(members[key], &s) == nil && s != nil { // others are kept with the rest
			*text = *s
			delete(members, key)
		}
	}
	if kind == Tool {
		for key, schema := range map[string]*json.RawMessage{"inputSchema": &f.Input, "outputSchema": &f.Output} {
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
		f.Rest, _ = json.Marshal(members) // cannot fail: it was read
	}
	return name, f
}

// dropState removes members that change with a resource's content.
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

// only reports whether a string is not empty and contains only these
// characters.
func only(text json.RawMessage, of string) bool {
	return len(text) > 0 && strings.Trim(string(text), of) == ""
}
