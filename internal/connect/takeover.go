package connect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// TakeOver is what moving a client's servers behind Sallyport would do.
type TakeOver struct {
	// Changes are the copies in the user's folder of definitions, and last the
	// client's file, which no longer starts the servers.
	Changes []Change
	Moved   []Moved
	Left    []Left
}

// Moved is a server that is moved.
type Moved struct {
	Name string `json:"name"`
	File string `json:"file"` // the copy
	// AllowTools and DenyTools restrict its tools, as the client did.
	AllowTools []string `json:"allowTools,omitzero"`
	DenyTools  []string `json:"denyTools,omitempty"`
	// Approved are tools that the client calls without asking; "*": all. The copy
	// records them.
	Approved []string `json:"approvedTools,omitempty"`
}

// Left is a server that stays in the client.
type Left struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Folder is the user's folder of definitions.
type Folder interface {
	// Defined returns the file in it that defines a server; empty: none does.
	Defined(name string) string
	// NewFile returns a path in it for a server, which neither exists nor is taken.
	NewFile(name string, taken func(path string) bool) string
}

// TakeOver plans to move the client's servers into a folder that Sallyport
// reads, and connects the client if it is not. A server that cannot be
// translated, or whose name is taken there, stays where it is.
func (m Machine) TakeOver(k Kept, command string, folder Folder) (TakeOver, error) {
	var out TakeOver
	installed, err := k.Install(command)
	if err != nil {
		return out, err
	}
	places := m.Places
	places.Dir = ""
	translated, problems := definitions.Translate([]definitions.Source{k.Target.Source()}, definitions.Options{
		Env: places.Env, Home: places.Home, Places: places, Self: m.Self,
	})
	approved := m.approved(k)
	text := installed.After
	var copies []Change
	taken := func(path string) bool {
		return slices.ContainsFunc(copies, func(c Change) bool { return c.File == path })
	}
	for _, d := range k.Servers {
		if d.Disabled || slices.Contains(k.Own, d.Name) {
			continue
		}
		leave := func(format string, args ...any) {
			out.Left = append(out.Left, Left{d.Name, fmt.Sprintf(format, args...)})
		}
		i := slices.IndexFunc(translated, func(t definitions.Translated) bool { return t.Name == d.Name })
		if i < 0 {
			why := "its definition cannot be translated"
			for _, p := range problems {
				if p.Server == d.Name {
					why = p.Reason
				}
			}
			leave("%s", why)
			continue
		}
		if file := folder.Defined(d.Name); file != "" {
			leave("%s already defines a server of that name: rename one of them", file)
			continue
		}
		moved := Moved{Name: d.Name, File: folder.NewFile(d.Name, taken), AllowTools: d.AllowTools, DenyTools: translated[i].From.DenyTools, Approved: approved[d.Name]}
		entry, err := withOrigin(translated[i].Entry, k.Target, moved.Approved)
		if err != nil {
			return out, err
		}
		file, err := definitions.File(d.Name, entry)
		if err != nil {
			return out, err
		}
		if text, err = k.Target.SwitchOff(text, d.Name); err != nil {
			return out, fmt.Errorf("%s: server %s: %w", k.Target.File, d.Name, err)
		}
		copies = append(copies, Change{File: moved.File, After: file})
		out.Moved = append(out.Moved, moved)
	}
	installed.After = text
	if !installed.Same() {
		out.Changes = append(copies, installed)
	}
	return out, nil
}

// withOrigin adds to an entry where it comes from, and what the client approved.
// Both are for people and for later: nothing reads them yet.
func withOrigin(entry json.RawMessage, t definitions.Target, approved []string) (json.RawMessage, error) {
	text, err := edit.Set(edit.JSON, entry, edit.At("source"), t.Client.Name+": "+t.File)
	if err == nil && len(approved) > 0 {
		text, err = edit.Set(edit.JSON, text, edit.At("autoApprove"), approved)
	}
	return text, err
}

// approved returns the tools that the client calls without asking, by server.
func (m Machine) approved(k Kept) map[string][]string {
	out := map[string][]string{}
	for _, d := range k.Servers {
		have, err := edit.Get(k.Target.Format, k.Content, k.Target.Place(d.Name))
		entry, ok := have.(map[string]any)
		if err != nil || !ok {
			continue
		}
		for _, key := range []string{"autoApprove", "alwaysAllow"} {
			list, _ := entry[key].([]any)
			for _, item := range list {
				if name, ok := item.(string); ok {
					out[d.Name] = append(out[d.Name], name)
				}
			}
		}
		if entry["trust"] == true {
			out[d.Name] = append(out[d.Name], "*")
		}
	}
	if k.Target.Client.Name == "claude-code" {
		for name, tools := range m.Places.ClaudeAllows() {
			for _, d := range k.Servers {
				if definitions.ClaudeName(d.Name) == name {
					out[d.Name] = append(out[d.Name], tools...)
				}
			}
		}
	}
	for name, tools := range maps.Clone(out) {
		slices.Sort(tools)
		out[name] = slices.Compact(tools)
	}
	return out
}

// Summary says in a line what becomes of a server's restrictions.
func (m Moved) Summary() string {
	var parts []string
	if m.AllowTools != nil {
		parts = append(parts, "only tools: "+strings.Join(m.AllowTools, ", "))
	}
	if len(m.DenyTools) > 0 {
		parts = append(parts, "denied tools: "+strings.Join(m.DenyTools, ", "))
	}
	if len(m.Approved) > 0 {
		parts = append(parts, "approved in the client: "+strings.Join(m.Approved, ", "))
	}
	return strings.Join(parts, "; ")
}
