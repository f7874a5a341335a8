package library

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sallyport/sallyport/internal/store"
)

// switchFile records which servers the user switched on and off, so that no
// other program's file has to change.
const (
	switchFile  = "switches.json"
	maxSwitches = 1 << 20
)

func (l *Library) switchState() store.Dir { return l.config.State.Area(store.Servers) }

// switches says which servers are on, by name.
type switches map[string]bool

func (l *Library) switches() (switches, string) {
	data, err := l.switchState().Read(switchFile, maxSwitches)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrNoPlace) {
		return nil, ""
	}
	var s switches
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return nil, fmt.Sprintf("cannot be read, so servers are on or off as their files say: %v", err)
	}
	return s, ""
}

func (s switches) apply(defs []Definition) {
	if len(s) == 0 {
		return
	}
	for i := range defs {
		if on, ok := s[defs[i].Name]; ok {
			defs[i].Disabled = !on
		}
	}
}

// Switch switches a server on or off, whatever its file says.
func (l *Library) Switch(name string, on bool) error {
	return l.editSwitches(func(s switches) { s[name] = on })
}

// Unswitch makes servers' files decide again.
func (l *Library) Unswitch(names ...string) error {
	s, problem := l.switches()
	if problem == "" && !slices.ContainsFunc(names, func(name string) bool { _, ok := s[name]; return ok }) {
		return nil
	}
	return l.editSwitches(func(s switches) {
		for _, name := range names {
			delete(s, name)
		}
	})
}

func (l *Library) editSwitches(edit func(switches)) error {
	dir := l.switchState()
	unlock, err := dir.Lock("switches")
	if err != nil {
		return err
	}
	defer unlock()
	s, problem := l.switches()
	if problem != "" {
		return errors.New(dir.Path(switchFile) + ": " + problem)
	}
	if s == nil {
		s = switches{}
	}
	edit(s)
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return dir.Write(switchFile, append(data, '\n'))
}
