package connect

import (
	"errors"
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
	// Shared means that the file defines the server already, or does once another
	// client's is moved.
	Shared bool `json:"shared,omitempty"`
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

// A Mover plans to move the servers of clients into a folder that Sallyport
// reads. It remembers what it has planned: several clients may have one server.
type Mover struct {
	machine Machine
	folder  Folder
	copies  map[string]*planned // by the server's name
}

// planned is a file of the folder as it will be.
type planned struct {
	file    string
	content []byte
	exists  bool
	from    []string // the clients' files whose definition it has
}

// NewMover returns a Mover that has planned nothing yet.
func NewMover(m Machine, folder Folder) *Mover {
	return &Mover{m, folder, map[string]*planned{}}
}

// From returns the clients' files whose definition of a server is moved.
func (m *Mover) From(server string) []string {
	if p := m.copies[server]; p != nil {
		return p.from
	}
	return nil
}

// Plan plans to move a client's servers, and to connect the client if it is not.
// A server that cannot be translated or switched off, or whose name has another
// definition in the folder, stays where it is.
func (m *Mover) Plan(k Kept, start Start) (TakeOver, error) {
	var out TakeOver
	installed, err := k.Install(start)
	if err != nil {
		return out, err
	}
	places := m.machine.Places
	places.Dir = ""
	translated, problems := definitions.Translate([]definitions.Source{k.Target.Source()}, definitions.Options{
		Env: places.Env, Home: places.Home, Places: places, Self: m.machine.Self,
	})
	approved := m.machine.approved(k)
	text := installed.After
	var copies []Change
	for _, d := range k.Servers {
		if d.Disabled || slices.Contains(k.Own, d.Name) || d.Name == Name {
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
		off, err := k.Target.SwitchOff(text, d.Name)
		if err != nil {
			leave("it cannot be switched off in %s: %v", k.Target.File, err)
			continue
		}
		one := moved{server: d.Name, client: k.Target.Client.Name, entry: translated[i].Entry, origin: edit.Object{{Key: "file", Value: k.Target.File}}}
		if tools := approved[d.Name]; len(tools) > 0 {
			one.origin = append(one.origin, edit.Member{Key: "approvedTools", Value: tools})
		}
		p, change, err := m.copy(one)
		var other *differentError
		if errors.As(err, &other) {
			leave("%v", err)
			continue
		}
		if err != nil {
			leave("it cannot be copied: %v", err)
			continue
		}
		if !change.Same() {
			copies = append(copies, change)
		}
		text = off
		p.content, p.exists, p.from = change.After, true, append(p.from, k.Target.File)
		m.copies[d.Name] = p
		out.Moved = append(out.Moved, Moved{
			Name: d.Name, File: p.file, Shared: change.Existed,
			AllowTools: d.AllowTools, DenyTools: translated[i].From.DenyTools, Approved: approved[d.Name],
		})
	}
	installed.After = text
	if !installed.Same() {
		out.Changes = append(copies, installed)
	}
	return out, nil
}

// A differentError reports another definition of the same name.
type differentError struct {
	file    string
	members []string
}

func (d *differentError) Error() string {
	return fmt.Sprintf("%s already defines a server of that name, with other %s: rename one of them", d.file, strings.Join(d.members, ", "))
}

// copy plans the copy of a server. Nothing is remembered of it.
func (m *Mover) copy(one moved) (*planned, Change, error) {
	p := m.copies[one.server]
	if p == nil {
		p = &planned{file: m.folder.Defined(one.server)}
		if p.file == "" {
			p.file = m.folder.NewFile(one.server, m.taken)
		} else {
			var err error
			if p.content, p.exists, err = Read(p.file, ""); err != nil {
				return nil, Change{}, err
			}
		}
	}
	if p.exists {
		members, err := one.differs(p.content)
		switch {
		case err != nil:
			return nil, Change{}, err
		case len(members) > 0 && len(p.from) > 0:
			return nil, Change{}, &differentError{p.from[0], members}
		case len(members) > 0:
			return nil, Change{}, &differentError{p.file, members}
		}
	}
	after, err := one.add(p.content, p.exists)
	return p, Change{File: p.file, Before: p.content, Existed: p.exists, After: after, copy: &one}, err
}

// taken reports whether a path is planned. Some file systems do not tell capital
// letters from small ones.
func (m *Mover) taken(path string) bool {
	for _, p := range m.copies {
		if strings.EqualFold(p.file, path) {
			return true
		}
	}
	return false
}

// approved returns the tools that the client calls without asking, by server.
func (m Machine) approved(k Kept) map[string][]string {
	out := map[string][]string{}
	for _, d := range k.Servers {
		have, err := edit.Get(k.Target.Format, k.Content, k.Target.Place(k.Content, d.Name))
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
