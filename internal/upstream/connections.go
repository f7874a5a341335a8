package upstream

import "context"

// maxConnections bounds the connections of one server.
const maxConnections = 64

// newEntry makes the entries for the definition of a slot: as many as it may
// have connections.
func (p *Pool) newEntry(id identity, s *slot) *entry {
	e := &entry{id: id, def: s.def, from: s.manager.from, users: make(map[*slot]struct{})}
	e.first = e
	for range p.connections(s.def) - 1 {
		e.more = append(e.more, &entry{id: id, def: s.def, from: e.from, first: e})
	}
	return e
}

// connections returns how many processes or connections a definition's server may
// have.
func (p *Pool) connections(def Definition) int {
	if p.opts.Connections == nil {
		return 1
	}
	return max(1, min(p.opts.Connections(def.Name), maxConnections))
}

// all returns the entry and the entries of its further connections.
func (e *entry) all() []*entry {
	if len(e.more) == 0 {
		return []*entry{e}
	}
	return append([]*entry{e}, e.more...)
}

// alive returns the running server, or nil.
func (e *entry) alive() *Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil || !e.current.Alive() {
		return nil
	}
	return e.current
}

// leastBusy is Server for one definition. If all connections are busy, it
// starts another one in the background for later callers. If that one fails,
// the caller does not notice.
func (p *Pool) leastBusy(ctx context.Context, first *entry) (*Server, error) {
	if len(first.more) == 0 {
		return p.serverOf(ctx, first)
	}
	best, least := (*entry)(nil), int64(0)
	var idle *entry
	for _, e := range first.all() {
		s := e.alive()
		switch {
		case s == nil && idle == nil:
			idle = e
		case s != nil && (best == nil || s.inFlight.Load() < least):
			best, least = e, s.inFlight.Load()
		}
	}
	if best == nil {
		return p.serverOf(ctx, first)
	}
	if least > 0 && idle != nil {
		idle.mu.Lock()
		_, _, _ = p.starting(idle) // too early, or shut down
		idle.mu.Unlock()
	}
	return p.serverOf(ctx, best)
}

// background runs f until the Pool is closed. It does nothing if that has
// happened already.
func (p *Pool) background(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.running.Go(func() { f(p.base) })
	}
}
