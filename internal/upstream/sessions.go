package upstream

import (
	"context"
	"maps"
	"slices"
	"time"
)

type sessionKey struct{}

// InSession returns a context whose calls of Manager.Server are for a session.
// Two clients that use one session share the servers that it has for itself.
func InSession(ctx context.Context, session string) context.Context {
	return context.WithValue(ctx, sessionKey{}, session)
}

func sessionOf(ctx context.Context) string {
	session, _ := ctx.Value(sessionKey{}).(string)
	return session
}

// inSession returns the slot for the server that a session has for itself.
func (s *slot) inSession(session string) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.sessions[session]; one != nil {
		return one
	}
	if s.released {
		return s // its entry says that it is over
	}
	one := &slot{manager: s.manager, def: s.def, parent: s, session: session}
	one.entry = s.manager.pool.acquire(s.manager.identity(s.def, session+"\x00"+s.def.Name, 0), one)
	if s.sessions == nil {
		s.sessions = make(map[string]*slot)
	}
	s.sessions[session] = one
	return one
}

// all returns the slot and those of sessions.
func (s *slot) all() []*slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []*slot{s}
	for _, session := range slices.Sorted(maps.Keys(s.sessions)) {
		out = append(out, s.sessions[session])
	}
	return out
}

// release ends the use of the slot's entries, as Pool.release does.
func (s *slot) release(linger, drain time.Duration) {
	all := s.all()
	s.mu.Lock()
	s.released = true
	for _, one := range s.sessions { // one may have been added
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	clear(s.sessions)
	s.mu.Unlock()
	for _, one := range all {
		s.manager.pool.release(one.entry, one, linger, drain)
	}
}

// EndSession ends the servers that a session has for itself, of all clients. It
// does not wait. The session's next use starts them again.
func (p *Pool) EndSession(session string) {
	var ended []*slot
	p.mu.Lock()
	for _, e := range p.entries {
		for s := range e.users {
			if s.session == session && s.parent != nil {
				ended = append(ended, s)
			}
		}
	}
	p.mu.Unlock()
	for _, s := range ended {
		s.parent.mu.Lock()
		if s.parent.sessions[session] == s {
			delete(s.parent.sessions, session)
		}
		s.parent.mu.Unlock()
		p.release(s.entry, s, 0, 0)
	}
}

// server returns a running server of the slot, which get starts if need be. The
// caller waits no longer than its own definition says, however long another
// client's lets the start take.
func (s *slot) server(ctx context.Context, get func(context.Context, *entry) (*Server, error)) (*Server, error) {
	p := s.manager.pool
	if s.entry.alive() == nil {
		if own := p.startTimeout(s.def); own < p.startLimit(s.entry) {
			var cancel context.CancelFunc
			ctx, cancel = WithTimeout(ctx, own)
			defer cancel()
		}
	}
	return get(ctx, s.entry)
}
