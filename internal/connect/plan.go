package connect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/edit"
	"github.com/sallyport/sallyport/internal/upstream/definitions"
)

// Name is what clients call Sallyport.
const Name = "sallyport"

// Machine is where clients are looked for.
type Machine struct {
	Places definitions.Places
	Self   definitions.Self
}

// Kept is what a client's file holds.
type Kept struct {
	Target  definitions.Target
	Content []byte
	Exists  bool
	// Servers are its definitions, Sallyport's own among them.
	Servers []definitions.Definition
	// Own are the names of those that start Sallyport.
	Own []string

	self   string          // this program's file
	direct map[string]bool // those of Own whose command is Sallyport, not a launcher
	npx    map[string]bool // those of Own that start it with a launcher, as Shared does
}

// Look reads a client's file.
func (m Machine) Look(t definitions.Target) (Kept, error) {
	k := Kept{Target: t, self: m.Self.Executable, direct: map[string]bool{}, npx: map[string]bool{}}
	var err error
	if k.Content, k.Exists, err = Read(t.File, t.Project); err != nil || !k.Exists {
		return k, err
	}
	places := m.Places
	places.Dir = "" // what a client keeps for single folders stays out
	k.Servers, _ = definitions.Load([]definitions.Source{t.Source()}, definitions.Options{
		Env: places.Env, Home: places.Home, AllowSelf: true, Places: places,
	})
	for _, d := range k.Servers {
		if d.Name == Name || m.Self.Is(d) {
			k.Own = append(k.Own, d.Name)
			k.direct[d.Name] = d.Remote() == nil && m.Self.Runs(d.Launch().Command)
			k.npx[d.Name] = d.Remote() == nil && launches(d.Launch())
		}
	}
	return k, nil
}

// launches reports whether a launcher starts Sallyport, and nothing else.
func launches(l *definitions.Launch) bool {
	args := l.Args
	if l.Command == "npx" && len(args) > 0 && (args[0] == "-y" || args[0] == "--yes") {
		args = args[1:]
	}
	if l.Command != "npx" && l.Command != "uvx" || len(args) != 2 || len(l.Env) > 0 || l.Dir != "" {
		return false
	}
	name, _, _ := strings.Cut(args[0], "@")
	return name == Name && args[1] == "serve"
}

// Hide removes the secrets of the file from a line of its content.
func (k Kept) Hide() func(string) string { return Hide(k.Servers, k.self) }

func (k Kept) change(after []byte) Change {
	return Change{Client: k.Target.Client.Name, File: k.Target.File, Project: k.Target.Project, Format: k.Target.Format, Before: k.Content, Existed: k.Exists, After: after}
}

// steady lists members that an entry keeps if it has them: the user may have
// chosen their values.
var steady = []string{"args", "envs", "env_keys", "timeout", "type", "name", "source", "tools"}

// environments lists the members with variables, which stay even where the entry
// is written anew.
var environments = []string{"env", "envs", "environment"}

// Install returns the change that connects a client, and switches the entry on. An entry whose command is
// Sallyport already keeps what the user added to it. One that starts it through a
// launcher, whose arguments are the launcher's, is written anew, except in a
// project's file: whoever works there chose it.
func (k Kept) Install(start Start) (Change, error) {
	t, text := k.Target, k.Content
	if !k.Exists {
		text = []byte(t.Head())
	}
	name := Name
	if len(k.Own) > 0 && !slices.Contains(k.Own, Name) {
		name = k.Own[0]
	}
	switch {
	case t.Project != "" && k.npx[name]:
		return k.switchedOn(text, name)
	case k.direct[name] && len(start.Args) > 1: // of a launcher, but those of the entry stay
		start.Command = Name
	}
	at := t.Place(text, name)
	entry := t.Entry(at, start.Command, start.Args)
	have, err := edit.Get(t.Format, text, at)
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w", t.File, err)
	}
	old, _ := have.(map[string]any)
	if !k.direct[name] {
		for _, key := range environments {
			if value, has := old[key]; has && !slices.ContainsFunc(entry, func(m edit.Member) bool { return m.Key == key }) {
				entry = append(slices.Clone(entry), edit.Member{Key: key, Value: object(value)})
			}
		}
		text, err = edit.Set(t.Format, text, at, entry)
	}
	for _, m := range entry {
		if !k.direct[name] || err != nil {
			break
		}
		if _, has := old[m.Key]; has && slices.Contains(steady, m.Key) {
			continue
		}
		value := m.Value
		if list, ok := old[m.Key].([]any); ok && m.Key == "command" && len(list) > 0 { // the arguments are in it
			value = append([]any{start.Command}, list[1:]...)
		}
		text, err = edit.Set(t.Format, text, edit.Place{Path: append(slices.Clone(at.Path), m.Key), Named: at.Named}, value)
	}
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w: add it by hand: the README shows how", t.File, err)
	}
	return k.switchedOn(text, name)
}

// switchedOn returns the change to a content in which a server is switched on.
func (k Kept) switchedOn(text []byte, name string) (Change, error) {
	text, err := k.Target.SwitchOn(text, name)
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w: switch %s on by hand", k.Target.File, err, name)
	}
	return k.change(text), nil
}

// object returns a value that edit.Get returned as edit.Set writes it in every
// format.
func object(value any) any {
	members, ok := value.(map[string]any)
	if !ok {
		return value
	}
	out := edit.Object{}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		out = append(out, edit.Member{Key: key, Value: members[key]})
	}
	return out
}

// Uninstall returns the change that removes Sallyport from a client.
func (k Kept) Uninstall() (Change, error) {
	text := k.Content
	var err error
	for _, name := range k.Own {
		if text, err = edit.Remove(k.Target.Format, text, k.Target.Place(text, name)); err != nil {
			return Change{}, fmt.Errorf("%s: %w: remove %s by hand", k.Target.File, err, name)
		}
	}
	return k.change(text), nil
}
