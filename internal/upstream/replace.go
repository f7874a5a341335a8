package upstream

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// configured holds the definitions in force at one time. It is immutable; a new
// one replaces it.
type configured struct {
	entries map[string]*entry
	defs    []Definition // sorted by name, with aliases
}

// configure makes entries of definitions. It keeps those whose server may keep
// running, and every name keeps its alias.
func (m *Manager) configure(defs []Definition, before *configured) *configured {
	sorted := slices.Clone(defs)
	slices.SortStableFunc(sorted, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	sorted = slices.CompactFunc(sorted, func(a, b Definition) bool { return a.Name == b.Name })
	c := &configured{entries: make(map[string]*entry, len(sorted)), defs: sorted}
	var known map[string]string
	if before != nil {
		known = make(map[string]string, len(before.defs))
		for _, d := range before.defs {
			known[d.Name] = d.Alias
		}
	}
	for i, alias := range serverAliases(sorted, known) {
		sorted[i].Alias = alias
		name := sorted[i].Name
		if before != nil {
			if old := before.entries[name]; old != nil && old.def.Same(sorted[i]) {
				c.entries[name] = old
				continue
			}
		}
		c.entries[name] = m.newEntry(sorted[i])
	}
	return c
}

// Replace puts other definitions into force. Servers whose definition did not
// change keep running. Those whose definition changed or is gone are stopped
// once their calls have ended or drain has passed; the next use of a name
// starts its new definition. Names keep their aliases.
func (m *Manager) Replace(defs []Definition, drain time.Duration) {
	m.replacing.Lock()
	defer m.replacing.Unlock()
	before := m.set.Load()
	after := m.configure(defs, before)
	m.set.Store(after)
	for _, name := range slices.Sorted(maps.Keys(before.entries)) {
		old := before.entries[name]
		if after.entries[name] == old {
			continue
		}
		m.mu.Lock()
		if !m.closed { // Close ends everything anyway
			for _, e := range old.all() {
				e.retired.Store(true)
				m.retiring[e] = struct{}{}
				m.running.Go(func() { m.retire(e, drain) })
			}
		}
		m.mu.Unlock()
	}
}

// retire ends the server of an entry that was replaced.
func (m *Manager) retire(e *entry, drain time.Duration) {
	defer func() {
		m.mu.Lock()
		delete(m.retiring, e)
		m.mu.Unlock()
	}()
	e.mu.Lock()
	a := e.starting
	e.mu.Unlock()
	if a != nil {
		<-a.done // a start ends with the Manager, too
	}
	e.mu.Lock()
	s := e.current
	e.mu.Unlock()
	if s == nil {
		return
	}
	over := time.NewTimer(drain)
	defer over.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.inFlight.Load() > 0 && s.Alive() {
		select {
		case <-tick.C:
			continue
		case <-over.C:
		case <-m.base.Done():
		}
		break
	}
	s.log.Info("MCP server stopped: its definition changed")
	if err := s.stop(m.patience); err != nil {
		s.log.Error("MCP server cannot be ended", "err", err)
	}
}
