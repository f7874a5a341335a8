package upstream

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
)

// configured holds the definitions in force at one time. It is immutable; a new
// one replaces it.
type configured struct {
	slots map[string]*slot
	defs  []Definition // sorted by name, with aliases
}

// configure makes entries of definitions. It keeps those whose server may keep
// running.
func (m *Manager) configure(defs []Definition, before *configured) *configured {
	sorted := slices.Clone(defs)
	slices.SortStableFunc(sorted, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	sorted = slices.CompactFunc(sorted, func(a, b Definition) bool { return a.Name == b.Name })
	c := &configured{slots: make(map[string]*slot, len(sorted)), defs: sorted}
	// Each definition of a Manager has a server of its own.
	taken := make(map[identity]bool)
	if before != nil {
		for _, s := range before.slots {
			taken[s.entry.id] = true
		}
	}
	for i := range sorted {
		sorted[i].Alias = tool.ServerAlias(sorted[i].Name)
		def := sorted[i]
		if before != nil {
			if old := before.slots[def.Name]; old != nil && old.def.Same(def) {
				c.slots[def.Name] = old
				continue
			}
		}
		id := m.identity(def, "", 0)
		for twin := uint64(1); taken[id]; twin++ {
			id = m.identity(def, "", twin)
		}
		taken[id] = true
		s := &slot{manager: m, def: def}
		s.entry = m.pool.acquire(id, s)
		c.slots[def.Name] = s
	}
	return c
}

// Replace puts other definitions into force. Servers whose definition did not
// change keep running. Those whose definition changed or is gone are stopped
// once their calls have ended or drain has passed; the next use of a name
// starts its new definition.
func (m *Manager) Replace(defs []Definition, drain time.Duration) {
	m.replacing.Lock()
	defer m.replacing.Unlock()
	if m.ended.Load() {
		return
	}
	before := m.set.Load()
	after := m.configure(defs, before)
	m.set.Store(after)
	for _, name := range slices.Sorted(maps.Keys(before.slots)) {
		if s := before.slots[name]; after.slots[name] != s {
			s.release(0, drain)
		}
	}
}
