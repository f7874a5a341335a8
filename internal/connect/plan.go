package connect

import (
	"fmt"
	"slices"

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
}

// Look reads a client's file.
func (m Machine) Look(t definitions.Target) (Kept, error) {
	k := Kept{Target: t}
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
		}
	}
	return k, nil
}

// Hide removes the secrets of the file from a line of its content.
func (k Kept) Hide() func(string) string { return Hide(k.Servers) }

func (k Kept) change(after []byte) Change {
	return Change{Client: k.Target.Client.Name, File: k.Target.File, Project: k.Target.Project, Format: k.Target.Format, Before: k.Content, Existed: k.Exists, After: after}
}

// steady lists members that an entry keeps if it has them: the user may have
// chosen their values.
var steady = []string{"args", "envs", "env_keys", "timeout", "type", "name", "source", "tools"}

// Install returns the change that connects a client. An entry that starts
// Sallyport already keeps what the user added to it.
func (k Kept) Install(command string) (Change, error) {
	t, text := k.Target, k.Content
	if !k.Exists {
		text = []byte(t.Head())
	}
	name := Name
	if len(k.Own) > 0 && !slices.Contains(k.Own, Name) {
		name = k.Own[0]
	}
	at := t.Place(name)
	entry := t.Entry(name, command, []string{"serve"})
	have, err := edit.Get(t.Format, text, at)
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w", t.File, err)
	}
	old, ours := have.(map[string]any)
	if !ours || len(k.Own) == 0 {
		text, err = edit.Set(t.Format, text, at, entry)
	}
	for _, m := range entry {
		if !ours || len(k.Own) == 0 || err != nil {
			break
		}
		if _, has := old[m.Key]; has && slices.Contains(steady, m.Key) {
			continue
		}
		value := m.Value
		if list, ok := old[m.Key].([]any); ok && m.Key == "command" && len(list) > 0 { // the arguments are in it
			value = append([]any{command}, list[1:]...)
		}
		text, err = edit.Set(t.Format, text, edit.Place{Path: append(slices.Clone(at.Path), m.Key), Named: at.Named}, value)
	}
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w: add it by hand: the README shows how", t.File, err)
	}
	return k.change(text), nil
}

// Uninstall returns the change that removes Sallyport from a client.
func (k Kept) Uninstall() (Change, error) {
	text := k.Content
	var err error
	for _, name := range k.Own {
		if text, err = edit.Remove(k.Target.Format, text, k.Target.Place(name)); err != nil {
			return Change{}, fmt.Errorf("%s: %w: remove %s by hand", k.Target.File, err, name)
		}
	}
	return k.change(text), nil
}
