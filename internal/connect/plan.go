package connect

import (
	"cmp"
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

// Running returns this program as Find needs it.
func (m Machine) Running() Running {
	return Running{Executable: m.Self.Executable, OS: m.Places.OS, Home: m.Places.Home, Env: m.Places.Env, Temporary: TemporaryFolders()}
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
	// Foreign says what an entry named like Sallyport starts instead; empty: there
	// is no such entry.
	Foreign string
	// Fleeting says why what one of Own starts will not be there for long.
	Fleeting string

	self     string            // this program's file
	direct   map[string]bool   // those of Own whose command is Sallyport, not a launcher
	launcher map[string]string // the launchers of the others, where one starts nothing else
}

// Look reads a client's file.
func (m Machine) Look(t definitions.Target) (Kept, error) {
	k := Kept{Target: t, self: m.Self.Executable, direct: map[string]bool{}, launcher: map[string]string{}}
	var err error
	if k.Content, k.Exists, err = Read(t.File, t.Project); err != nil || !k.Exists {
		return k, err
	}
	places := m.Places
	places.Dir = "" // what a client keeps for single folders stays out
	k.Servers, _ = definitions.Load([]definitions.Source{t.Source()}, definitions.Options{
		Env: places.Env, Home: places.Home, AllowSelf: true, Places: places,
	})
	entry, _ := edit.Get(t.Format, k.Content, t.Place(k.Content, Name))
	if !slices.ContainsFunc(k.Servers, func(d definitions.Definition) bool { return d.Name == Name }) && entry != nil {
		k.Foreign = "something that cannot be read"
	}
	for _, d := range k.Servers {
		switch {
		case d.Name == Name && (d.Remote() != nil || !m.Self.Starts(d) && !strings.HasPrefix(base(d.Launch().Command), Name)):
			k.Foreign = cmp.Or(d.Command, d.URL) // arguments may have secrets of any form
			continue
		case !m.Self.Is(d):
			continue
		}
		k.Own = append(k.Own, d.Name)
		if d.Remote() != nil {
			continue
		}
		k.direct[d.Name] = m.Self.Runs(d.Launch().Command)
		if launcher, _, ok := launched(d.Launch()); ok && len(d.Launch().Env) == 0 && d.Launch().Dir == "" || ok && t.Project == "" {
			k.launcher[d.Name] = launcher
		}
		if k.Fleeting == "" && !d.Disabled {
			k.Fleeting = m.Running().Fleeting(d.Launch())
		}
	}
	return k, nil
}

func (k Kept) change(after []byte) Change {
	return Change{Client: k.Target.Client.Name, File: k.Target.File, Project: k.Target.Project, Format: k.Target.Format, Before: k.Content, Existed: k.Exists, After: after}
}

// steady lists members that an entry keeps if it has them: the user may have
// chosen their values.
var steady = []string{"envs", "env_keys", "timeout", "type", "name", "source", "tools"}

// environments lists the members with variables, which stay even where the entry
// is written anew.
var environments = []string{"env", "envs", "environment"}

// Install returns the change that connects a client, and switches the entry on.
// An entry that starts Sallyport already, itself or through a launcher, keeps what
// the user added to it. One of a project's file that a launcher starts stays:
// whoever works there chose it.
func (k Kept) Install(start Start) (Change, error) {
	t, text := k.Target, k.Content
	if !k.Exists {
		text = []byte(t.Head())
	}
	name := Name
	if len(k.Own) > 0 && !slices.Contains(k.Own, Name) && k.Foreign == "" {
		name = k.Own[0]
	}
	at := t.Place(text, name)
	have, err := edit.Get(t.Format, text, at)
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w", t.File, err)
	}
	old, _ := have.(map[string]any)
	if k.Foreign != "" {
		old = nil
	}
	launch := written(old)
	same, args := k.direct[name], launch.Args // the entry's own arguments stay
	switch by := k.launcher[name]; {
	case by != "" && t.Project != "":
		return k.switchedOn(text, name)
	case by != "":
		_, own, _ := launched(launch)
		if by == start.by && len(launch.Args)-len(own) == start.launcher && k.Fleeting == "" {
			return k.switchedOn(text, name)
		}
		if len(own) > 0 {
			start = start.with(own)
		}
	case same && t.Project != "" && start.launcher > 0:
		start = Start{Command: Name, Args: args}
	case same && !slices.Contains(args, "serve"): // only that serves a client
	case same && start.launcher > 0:
		start = start.with(args)
	case same:
		start.Args = args
	}
	if same || k.launcher[name] != "" {
		text, err = k.replace(text, name, old, start)
	} else {
		entry := t.Entry(at, start.Command, start.Args)
		for _, key := range environments {
			if value, has := old[key]; has && !slices.ContainsFunc(entry, func(m edit.Member) bool { return m.Key == key }) {
				entry = append(slices.Clone(entry), edit.Member{Key: key, Value: object(value)})
			}
		}
		text, err = edit.Set(t.Format, text, at, entry)
	}
	if err != nil {
		return Change{}, fmt.Errorf("%s: %w: add it by hand: the guide shows how", t.File, err)
	}
	return k.switchedOn(text, name)
}

// replace sets what an entry starts, and leaves its other members.
func (k Kept) replace(text []byte, name string, old map[string]any, start Start) (_ []byte, err error) {
	t := k.Target
	at := t.Place(text, name)
	for _, m := range t.Entry(at, start.Command, start.Args) {
		if _, has := old[m.Key]; has && slices.Contains(steady, m.Key) || m.Key == "args" && !has && len(start.Args) == 0 {
			continue
		}
		if text, err = edit.Set(t.Format, text, edit.Place{Path: append(slices.Clone(at.Path), m.Key), Named: at.Named}, m.Value); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// written returns the command of an entry as the file has it.
func written(entry map[string]any) *definitions.Launch {
	l := &definitions.Launch{}
	var words []any
	for _, key := range []string{"command", "cmd"} {
		switch command := entry[key].(type) {
		case string:
			l.Command = command
		case []any:
			words = command
		}
	}
	list, _ := entry["args"].([]any)
	for i, word := range append(slices.Clone(words), list...) {
		text := fmt.Sprint(word) // a number, too
		if i == 0 && len(words) > 0 {
			l.Command = text
		} else {
			l.Args = append(l.Args, text)
		}
	}
	return l
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
