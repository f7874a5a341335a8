package app

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/sallyport/sallyport/internal/artifact"
	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/environment"
	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/memory"
	"github.com/sallyport/sallyport/internal/savedtools"
	"github.com/sallyport/sallyport/internal/snapshot"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/usage/ledger"
)

// State returns the state directory. Where there is none, its methods fail with
// store.ErrNoPlace.
func (a *App) State() store.Dir { return store.At(a.Settings.StateDir) }

// CheckState examines the state directory without changing it.
func (a *App) CheckState() (*store.Report, error) {
	return a.State().Check(map[store.Area]func(string, []byte) error{
		store.Artifacts: artifact.Check, store.Memory: memory.Check, store.SavedTools: savedtools.Check, store.Environments: environment.Check,
	})
}

// Artifacts opens the files that code left.
func (a *App) Artifacts() *artifact.Store {
	return artifact.NewStore(a.state(store.Artifacts), artifact.Options{Keep: a.Settings.Artifacts.Keep, MaxDisk: a.Settings.Artifacts.MaxDisk, Log: a.Log})
}

// state returns an area of the state directory.
func (a *App) state(area store.Area) store.Dir { return a.State().Area(area) }

// statePath returns the path of an area, or "" where there is no state directory.
func (a *App) statePath(area store.Area) string {
	if a.Settings.StateDir == "" {
		return ""
	}
	return a.state(area).Path("")
}

// owned returns an area of an owner: below the state directory for the local
// user, and below owners/NAME there for others.
func (a *App) owned(owner string, area store.Area) store.Dir {
	switch owner {
	case "":
		return store.At("") // an owner is required
	case authz.LocalOwner:
		return a.state(area)
	}
	return a.state(store.Owners).Sub(store.FileName(owner, "")).Area(area)
}

// stores opens what the code of each owner keeps, once. It implements
// bridge.Stores.
type stores struct {
	app *App

	mu     sync.Mutex
	memory map[string]*memory.Store
	tools  map[string]*savedtools.Store
}

func newStores(a *App) *stores {
	return &stores{app: a, memory: map[string]*memory.Store{}, tools: map[string]*savedtools.Store{}}
}

// Memory implements bridge.Stores.
func (s *stores) Memory(owner string) bridge.Memory {
	if !s.app.Settings.Memory.Enabled {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory[owner] == nil {
		s.memory[owner] = s.app.memoryOf(owner)
	}
	return s.memory[owner]
}

// SavedTools implements bridge.Stores.
func (s *stores) SavedTools(owner string) bridge.SavedTools {
	if !s.app.Settings.Saved.Enabled {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools[owner] == nil {
		s.tools[owner] = s.app.savedToolsOf(owner)
	}
	return s.tools[owner]
}

// Memory opens what the local user's code keeps under keys.
func (a *App) Memory() *memory.Store { return a.memoryOf(authz.LocalOwner) }

func (a *App) memoryOf(owner string) *memory.Store {
	set := a.Settings.Memory
	return memory.Open(a.owned(owner, store.Memory), memory.Limits{Value: set.MaxValue, Keys: set.MaxKeys, Total: set.MaxTotal})
}

// SavedTools opens the functions that the local user's code saves.
func (a *App) SavedTools() *savedtools.Store { return a.savedToolsOf(authz.LocalOwner) }

func (a *App) savedToolsOf(owner string) *savedtools.Store {
	set := a.Settings.Saved
	return savedtools.Open(a.owned(owner, store.SavedTools), savedtools.Limits{Tools: set.MaxTools, Versions: set.Versions})
}

// Ledger opens the ledger. It is nil where there is no state directory.
func (a *App) Ledger() *ledger.Ledger {
	if a.Settings.StateDir == "" {
		return nil
	}
	return ledger.At(a.state(store.Ledger))
}

// ImageStore opens the images.
func (a *App) ImageStore() *image.Store {
	return image.At(a.statePath(store.Images), flatten.Limits{Bytes: a.Settings.Images.MaxSize})
}

// Pins opens the descriptions of tools that the user accepted.
func (a *App) Pins() *pins.Book { return pins.Open(a.state(store.Pins), a.Log) }

// snapshots opens the snapshots of sandboxes. It is nil where there is no state
// directory.
func (a *App) snapshots() *snapshot.Store {
	if a.Settings.StateDir == "" {
		return nil
	}
	return snapshot.At(a.statePath(store.Snapshots))
}

// NeedsImage reports whether a suspended session needs the image: its snapshot
// names it.
func (a *App) NeedsImage(id string) (bool, error) { return a.needs("image: " + id) }

// NeedsPackages is NeedsImage for an archive of packages, by its digest.
func (a *App) NeedsPackages(digest string) (bool, error) { return a.needs("packages: " + digest) }

// needs reports whether the binding of a suspended session's snapshot has a line.
func (a *App) needs(wanted string) (bool, error) {
	store := a.snapshots()
	if store == nil {
		return false, nil
	}
	list, err := store.List()
	if err != nil {
		return false, err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name, "base-") {
			continue // prepared, and made again
		}
		binding, err := store.Binding(e.Name)
		if errors.Is(err, snapshot.ErrNone) {
			continue // removed meanwhile
		}
		if err != nil {
			return false, fmt.Errorf("cannot tell what suspended sessions need: %w", err)
		}
		for line := range strings.Lines(binding) {
			if strings.TrimSpace(line) == wanted {
				return true, nil
			}
		}
	}
	return false, nil
}
